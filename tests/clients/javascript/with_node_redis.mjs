// node-redis: RESP3, typed replies, a cache on the client's side, sharded pub/sub.
import assert from 'node:assert/strict';
import { createClient } from 'redis';
import { port, run, until } from './holds.mjs';

const connect = (options = {}) => createClient({ url: `redis://127.0.0.1:${port}`, ...options }).connect();
const r = await connect({ RESP: 3 });

await run('node-redis', {
  async 'maps, sets and doubles of RESP3'() {
    await r.del(['nr:h', 'nr:z', 'nr:s']);
    await r.hSet('nr:h', { a: '1', b: '2' });
    assert.deepEqual({ ...(await r.hGetAll('nr:h')) }, { a: '1', b: '2' });
    await r.zAdd('nr:z', [{ score: 1.5, value: 'x' }, { score: 2, value: 'y' }]);
    assert.deepEqual((await r.zRangeWithScores('nr:z', 0, -1)).map(({ score, value }) => [score, value]), [[1.5, 'x'], [2, 'y']]);
    await r.sAdd('nr:s', ['m', 'n']);
    assert.deepEqual([...(await r.sMembers('nr:s'))].sort(), ['m', 'n']);
  },
  async 'transactions with WATCH'() {
    await r.set('nr:n', '1');
    const watcher = await connect();
    await watcher.watch('nr:n');
    await r.set('nr:n', '2');
    await assert.rejects(watcher.multi().set('nr:n', '3').exec(), /watched/i);
    assert.equal(await r.get('nr:n'), '2');
    watcher.destroy();
  },
  async 'messages, patterns and shards'() {
    const listener = await connect({ RESP: 3 });
    const got = [];
    await listener.subscribe('nr:news', (message) => got.push(message));
    await listener.pSubscribe('nr:n*', (message) => got.push(message));
    await listener.sSubscribe('nr:shard', (message) => got.push(message));
    await r.publish('nr:news', 'a');
    await r.sPublish('nr:shard', 'b');
    await until('three messages', () => got.length === 3);
    assert.deepEqual(got.sort(), ['a', 'a', 'b']);
    listener.destroy();
  },
  async 'a cache that receives invalidations'() {
    const cached = await connect({ RESP: 3, clientSideCache: { ttl: 0, maxEntries: 100, evictPolicy: 'LRU' } });
    await r.set('nr:cached', 'old');
    assert.equal(await cached.get('nr:cached'), 'old');
    assert.equal(await cached.get('nr:cached'), 'old');
    await r.set('nr:cached', 'new');
    await until('the cache is told', async () => (await cached.get('nr:cached')) === 'new');
    cached.destroy();
  },
  async 'functions and streams'() {
    await r.functionLoad("#!lua name=nr\nredis.register_function('nr_add', function(keys, args) return redis.call('incrby', keys[1], args[1]) end)", { REPLACE: true });
    await r.del('nr:f');
    assert.equal(await r.fCall('nr_add', { keys: ['nr:f'], arguments: ['5'] }), 5);
    await r.del('nr:orders');
    await r.xGroupCreate('nr:orders', 'g', '0', { MKSTREAM: true });
    const id = await r.xAdd('nr:orders', '*', { order: '1' });
    const read = await r.xReadGroup('g', 'c', { key: 'nr:orders', id: '>' }, { COUNT: 1 });
    assert.ok(JSON.stringify(read).includes(id));
    assert.equal(await r.xAck('nr:orders', 'g', id), 1);
  },
});
