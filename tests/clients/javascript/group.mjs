// Uses clients all the time, while ../group kills the leader of three nodes and hands leadership over.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { run, sleep, until } from './holds.mjs';

export const mode = process.env.GROUP_MODE;

export function addresses(variable) {
  return process.env[variable].split(' ').map((address) => {
    const [host, port] = address.split(':');
    return { host, port: Number(port) };
  });
}

// Increments a key again and again. A reply that is no higher than an earlier one shows that a change was lost.
class Counter {
  acknowledged = 0;
  lost = false;
  pauseMs = 0;

  constructor(client) {
    this.#run(client);
  }

  async #run(client) {
    for (let last = 0, at = Date.now(); ; await sleep(1)) {
      try {
        const value = await client.incr('counter');
        this.pauseMs = Math.max(this.pauseMs, Date.now() - at);
        this.lost ||= value <= last;
        [last, at] = [value, Date.now()];
        this.acknowledged++;
      } catch (error) {
        this.failure = error;
      }
    }
  }

  // Asks ../group for a change, and waits until changes are acknowledged before and after it.
  async goesOn(change) {
    await this.#isServed();
    this.pauseMs = 0;
    await promisify(execFile)(process.env.GROUP, [change]);
    await this.#isServed();
    console.log(`${change}: no reply for ${this.pauseMs} ms`);
    assert.ok(!this.lost, 'a change was lost');
  }

  async #isServed() {
    const enough = this.acknowledged + 20;
    await until(`the client finds the leader, ${this.failure}`, () => this.acknowledged >= enough);
  }
}

export async function follow(library, client) {
  const counter = new Counter(client);
  await run(`${library} ${mode}`, {
    async 'follows the leader after a kill'() {
      await counter.goesOn('kill-leader');
    },
    async 'follows a transfer to the restarted node'() {
      await counter.goesOn('restart');
      await counter.goesOn('transfer');
    },
  });
}
