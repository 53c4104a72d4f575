// BullMQ: a thousand jobs with retries, delays and priorities; none is lost, and none runs again once it has succeeded.
import assert from 'node:assert/strict';
import { FlowProducer, Queue, QueueEvents, Worker } from 'bullmq';
import { port, run, until } from './holds.mjs';

const connection = { host: '127.0.0.1', port, maxRetriesPerRequest: null };

await run('bullmq', {
  async 'a thousand jobs, none lost or run twice'() {
    const queue = new Queue('orders', { connection });
    await queue.obliterate({ force: true });
    const [tries, done] = [new Map(), new Map()];
    const work = async (job) => {
      const { n } = job.data;
      tries.set(n, (tries.get(n) ?? 0) + 1);
      if (n % 10 === 0 && tries.get(n) < 3) throw new Error('again');
      done.set(n, (done.get(n) ?? 0) + 1);
      return n * 2;
    };
    const workers = Array.from({ length: 4 }, () => new Worker('orders', work, { connection, concurrency: 8 }));
    await queue.addBulk(
      Array.from({ length: 1_000 }, (_, n) => ({
        name: 'order',
        data: { n },
        opts: { attempts: 5, backoff: { type: 'fixed', delay: 5 }, delay: n % 7 === 0 ? 50 : 0, priority: n % 5 === 0 ? 1 + (n % 3) : 0 },
      })),
    );
    await until('all jobs are completed', async () => (await queue.getCompletedCount()) === 1_000);
    assert.equal(done.size, 1_000);
    assert.ok([...done.values()].every((count) => count === 1), 'a job succeeded twice');
    assert.ok([...tries].every(([n, count]) => count === (n % 10 === 0 ? 3 : 1)), 'a job ran too often');
    const left = await queue.getJobCounts('wait', 'active', 'delayed', 'failed', 'prioritized');
    assert.deepEqual(left, { wait: 0, active: 0, delayed: 0, failed: 0, prioritized: 0 });
    await Promise.all(workers.map((worker) => worker.close()));
    await queue.close();
  },
  async 'events, results and flows'() {
    const events = new QueueEvents('flow', { connection });
    await events.waitUntilReady();
    const worker = new Worker('flow', async (job) => (await job.getChildrenValues().then(Object.values)).reduce((a, b) => a + b, job.data.n), { connection });
    const flow = new FlowProducer({ connection });
    const children = [1, 2, 3].map((n) => ({ name: 'child', queueName: 'flow', data: { n } }));
    const { job } = await flow.add({ name: 'parent', queueName: 'flow', data: { n: 10 }, children });
    assert.equal(await job.waitUntilFinished(events, 30_000), 16);
    await worker.close();
    await events.close();
    await flow.close();
  },
  async 'a worker that limits its rate'() {
    const queue = new Queue('limited', { connection });
    await queue.obliterate({ force: true });
    let count = 0;
    const worker = new Worker('limited', async () => void count++, { connection, limiter: { max: 5, duration: 20 } });
    await queue.addBulk(Array.from({ length: 25 }, () => ({ name: 'x', data: {} })));
    await until('all jobs are done', () => count === 25);
    await worker.close();
    await queue.close();
  },
});
