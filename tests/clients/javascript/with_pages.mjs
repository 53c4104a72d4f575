// ioredis and node-redis, as the pages show them: each of their snippets, unchanged except for the port.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createClient } from 'redis';
import { port, run } from './holds.mjs';

const overview = 'docs/coordination/README.md';
const snippets = readFileSync(process.env.SNIPPETS, 'utf8')
  .trimEnd()
  .split('\n')
  .map((line) => line.split('\t'))
  .map(([file, page, number]) => ({ page, number, text: readFileSync(file, 'utf8').replaceAll('6379', port) }));
const own = await createClient({ url: `redis://127.0.0.1:${port}` }).connect();
const isImport = (line) => line.startsWith('import ');

// A module of the snippet: its imports, and the rest as a function that returns the names it defines.
async function made({ text }, file, known, makes) {
  const lines = text.split('\n');
  const body = lines.filter((line) => !isImport(line)).join('\n');
  const answer = makes.map((name) => `${name}: typeof ${name} === 'undefined' ? undefined : ${name}`);
  writeFileSync(
    file,
    `${lines.filter(isImport).join('\n')}\nexport default async ({ ${known.join(', ')} }) => {\n${body}\nreturn { ${answer.join(', ')} }\n}\n`,
  );
  return (await import(file)).default;
}

async function calls(command) {
  const [, count] = new RegExp(`cmdstat_${command.toLowerCase()}:calls=(\\d+)`).exec(await own.info('commandstats')) ?? [, 0];
  return Number(count);
}

// Runs a snippet in the state that its page describes before it. A snippet that waits is first run in vain.
async function shows(snippet, connections, file) {
  await own.flushAll();
  await own.set('stock:42', '10');
  const [, { token }] = await own.sendCommand(['LOCK.ACQUIRE', 'lock:report', 'worker-7:3f2a', 'PX', '60000']);
  const names = { ...connections, job: 'job-4711', owner: 'worker-7:3f2a', order: '77', token: String(token) };
  const shadowed = [...snippet.text.matchAll(/^const (\w+) =/gm)].map(([, name]) => name);
  const known = Object.keys(names).filter((name) => !shadowed.includes(name));
  const program = await made(snippet, file, known, ['granted', 'fields']);
  const waits = /'([A-Z.]+)', '([^']+)'.*'BLOCK'/.exec(snippet.text);
  if (waits) {
    const [, command, key] = waits;
    await own.sendCommand(['LOCK.BREAK', key]);
    await own.sendCommand(['LOCK.ACQUIRE', key, 'somebody else', 'PX', '60000']);
    const before = await calls(command);
    const { granted, fields } = await program(names);
    // ioredis makes a list of names and values.
    const reason = Array.isArray(fields) ? fields[fields.indexOf('reason') + 1] : fields.reason;
    assert.deepEqual([granted, reason], [0, 'timeout']);
    assert.equal(await calls(command), before + 1, 'it has called again');
    await own.sendCommand(['LOCK.BREAK', key]);
  }
  const { granted, fields } = await program(names);
  assert.ok(granted === undefined || granted === 1);
  // An object, or a list of names and values, but not a list that holds one of these.
  assert.notEqual(typeof fields?.[0], 'object', JSON.stringify(fields));
}

const introduction = snippets.find(({ page }) => page === overview);
const connecting = await made(introduction, join(process.env.CACHE, 'page.connecting.mjs'), [], ['client', 'redis']);
const connections = await connecting({});
await run(
  'pages',
  Object.fromEntries(
    snippets.map((snippet, at) => [
      `${snippet.page} ${snippet.number}`,
      () => shows(snippet, connections, join(process.env.CACHE, `page.${at}.mjs`)),
    ]),
  ),
);
