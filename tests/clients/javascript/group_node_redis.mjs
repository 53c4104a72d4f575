// node-redis follows the leader of a group.
import { createCluster, createSentinel } from 'redis';
import { addresses, follow, mode } from './group.mjs';

const sentinel = () => createSentinel({ name: 'mymaster', sentinelRootNodes: addresses('SENTINELS') });
const cluster = () =>
  createCluster({
    rootNodes: addresses('NODES').map(({ host, port }) => ({ url: `redis://${host}:${port}` })),
    // By default it tries a dead leader for 5 s before it asks another node.
    topologyRefreshOnReconnectionAttemptStrategy: 500,
  });

const client = mode === 'sentinel' ? sentinel() : cluster();
client.on('error', () => {});
await client.connect();
await follow('node-redis', client);
