// ioredis follows the leader of a group.
import { Cluster, Redis } from 'ioredis';
import { addresses, follow, mode } from './group.mjs';

const client = mode === 'sentinel' ? new Redis({ name: 'mymaster', sentinels: addresses('SENTINELS') }) : new Cluster(addresses('NODES'));
// Without a listener it prints each failure.
client.on('error', () => {});
await follow('ioredis', client);
