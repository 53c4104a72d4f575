// ioredis: pipelines, scripts as commands of their own, pub/sub, blocking reads, offline queue.
import assert from 'node:assert/strict';
import { Redis } from 'ioredis';
import { RateLimiterRedis } from 'rate-limiter-flexible';
import Redlock, { ExecutionError } from 'redlock';
import { port, run, sleep, until } from './holds.mjs';

const client = (options = {}) => new Redis({ port, host: '127.0.0.1', ...options });
const r = client();

await run('ioredis', {
  async 'pipelines and transactions'() {
    await r.del('io:n', 'io:list');
    const replies = await r.pipeline(Array.from({ length: 3_000 }, () => ['incr', 'io:n'])).exec();
    assert.equal(replies.at(-1)[1], 3_000);
    const exec = await r.multi().set('io:n', '1').rpush('io:list', 'a', 'b').lrange('io:list', 0, -1).exec();
    assert.deepEqual(exec, [[null, 'OK'], [null, 2], [null, ['a', 'b']]]);
    await assert.rejects(r.incr('io:list'), /WRONGTYPE/);
  },
  async 'a script as a command'() {
    await r.script('FLUSH');
    r.defineCommand('take', {
      numberOfKeys: 1,
      lua: `local n = tonumber(redis.call('get', KEYS[1]) or '0')
            if n < tonumber(ARGV[1]) then return redis.call('incr', KEYS[1]) end
            return 0`,
    });
    await r.del('io:gate');
    assert.deepEqual(await Promise.all([1, 2, 3, 4].map(() => r.take('io:gate', 3))), [1, 2, 3, 0]);
  },
  async 'rate-limiter-flexible admits no more than its points'() {
    const limiter = new RateLimiterRedis({ storeClient: r, keyPrefix: 'io:limit', points: 5, duration: 3_600 });
    await limiter.delete('ann');
    const outcomes = await Promise.allSettled(Array.from({ length: 20 }, () => limiter.consume('ann')));
    assert.equal(outcomes.filter(({ status }) => status === 'fulfilled').length, 5);
  },
  async 'redlock lets one in at a time, and extends'() {
    const redlock = new Redlock([r], { retryCount: -1, retryDelay: 5 });
    let count = 0;
    await Promise.all(Array.from({ length: 20 }, () => redlock.using(['io:lock'], 60_000, async () => {
      const before = count;
      await sleep(1);
      count = before + 1;
    })));
    assert.equal(count, 20);
    const impatient = new Redlock([r], { retryCount: 0 });
    const held = await (await redlock.acquire(['io:lock', 'io:other'], 60_000)).extend(120_000);
    await assert.rejects(impatient.acquire(['io:other'], 1_000), ExecutionError);
    await held.release();
    await (await impatient.acquire(['io:other'], 1_000)).release();
  },
  async 'messages to many listeners'() {
    const listeners = Array.from({ length: 20 }, () => client());
    const got = new Map(listeners.map((listener) => [listener, 0]));
    for (const listener of listeners) {
      listener.on('message', () => got.set(listener, got.get(listener) + 1));
      await listener.subscribe('io:news');
    }
    for (let n = 0; n < 100; n++) assert.equal(await r.publish('io:news', String(n)), 20);
    await until('every listener has every message', () => [...got.values()].every((n) => n === 100));
    listeners.forEach((listener) => listener.disconnect());
  },
  async 'blocking reads of lists and streams'() {
    const [waiter, other] = [client(), client()];
    await r.del('io:queue', 'io:stream');
    const popped = waiter.blpop('io:queue', 30);
    const read = other.xread('BLOCK', 30_000, 'STREAMS', 'io:stream', '$');
    await until('both wait', async () => /blocked_clients:2/.test(await r.info('clients')));
    await r.rpush('io:queue', 'job');
    const id = await r.xadd('io:stream', '*', 'order', '1');
    assert.deepEqual(await popped, ['io:queue', 'job']);
    assert.deepEqual(await read, [['io:stream', [[id, ['order', '1']]]]]);
    waiter.disconnect();
    other.disconnect();
  },
  async 'scan of every key once'() {
    await r.mset(...Array.from({ length: 500 }, (_, n) => [`io:scan:${n}`, n]).flat());
    const seen = [];
    for await (const keys of r.scanStream({ match: 'io:scan:*', count: 50 })) seen.push(...keys);
    assert.equal(new Set(seen).size, 500);
  },
  async 'commands sent before the connection is ready'() {
    const early = client({ lazyConnect: true });
    assert.equal(await early.ping(), 'PONG');
    assert.match(await early.client('LIST'), /lib-name=ioredis/);
    early.disconnect();
  },
  async 'monitor'() {
    const monitor = await client().monitor();
    const seen = [];
    monitor.on('monitor', (_time, args) => seen.push(args.join(' ')));
    await r.set('io:seen', '1');
    await until('the command is seen', () => seen.includes('set io:seen 1'));
    monitor.disconnect();
  },
});
