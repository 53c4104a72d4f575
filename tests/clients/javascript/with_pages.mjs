// ioredis and node-redis, as the pages of docs/coordination show them: each of their snippets, as it stands there.
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import Redis from 'ioredis';
import { createClient } from 'redis';
import { port, run } from './holds.mjs';

const pages = process.env.PAGES;
const client = await createClient({ url: `redis://127.0.0.1:${port}`, RESP: 3 }).connect();
const redis = new Redis({ port });
const AsyncFunction = (async () => {}).constructor;

await run('docs/coordination in JavaScript', {
  async 'what the pages show'() {
    let ran = 0;
    for (const page of readdirSync(pages).filter((name) => name.endsWith('.md')).sort()) {
      await client.flushAll();
      await client.set('stock:42', '10');
      const [, { token }] = await client.sendCommand(['LOCK.ACQUIRE', 'lock:report', 'worker-7:3f2a', 'PX', '30000']);
      const names = { client, redis, job: 'job-4711', owner: 'worker-7:3f2a', order: '77', token: String(token) };
      for (const [, snippet] of readFileSync(join(pages, page), 'utf8').matchAll(/```js\n(.*?)```/gs)) {
        const granted = await new AsyncFunction(...Object.keys(names), `${snippet}\nreturn typeof granted === 'undefined' ? 1 : granted`)(
          ...Object.values(names),
        );
        assert.equal(granted, 1, page);
        ran++;
      }
    }
    assert.ok(ran >= 6, `${ran} snippets in JavaScript`);
  },
});
