// Looks for keys on the server, page by page: the server matches, and each request looks at a bounded number of keys.

import { effect, signal } from "./vendor/signals-core.module.js";
import { asText, Failure, keyId, run } from "./api.js";
import { whileHidden } from "./live.js";
import { database, isShown, route } from "./route.js";

// Keys that one request looks at. It may find as many, which are shown a page at a time.
export const LOOKED_AT = 5000;

// Keys that are looked at before the reader is asked whether to go on.
const LOOKED_MAX = 3000000;

// The shortest time between two requests, so that others are served in between.
const PAUSE_MS = 10;

// Waits for this long, or for that time.
export const wait = (ms) => new Promise((done) => setTimeout(done, Math.max(PAUSE_MS, ms)));

// Whether a text is a glob. Any other text is the beginning of a key, or all of it.
export const isPattern = (text) => /[*?[]/.test(text);

// The glob of what a reader typed.
export const globOf = (text) => (isPattern(text) ? text : text.replace(/[\\]/g, "\\\\") + "*");

// The search of a screen: `found` keys of some `types`, until there are `page` more, or the reader has seen enough. It
// begins when the screen is entered or the address asks for something else, and stops when the screen is left. The type
// null is any; then the address may name one.
export class Scan {
  constructor(screen, types, page) {
    this.types = types;
    this.page = page;
    this.state = signal({ found: [], looked: 0, done: false, busy: false, error: null });
    this.turn = 0;
    let searched = null;
    effect(() => {
      const { params } = route.value;
      if (!isShown(screen)) {
        searched = null;
        this.stop();
        return;
      }
      const wanted = [params.get("q") || "", database(), (types.includes(null) && params.get("type")) || null];
      if (JSON.stringify(wanted) === searched) return;
      searched = JSON.stringify(wanted);
      this.begin(...wanted);
    });
  }

  begin(text, db, type) {
    this.turn += 1;
    this.text = text;
    this.db = db;
    this.asked = type ? [type] : this.types;
    this.cursors = this.asked.map(() => "0");
    this.open = this.asked.map(() => true);
    this.seen = new Set();
    this.all = [];
    this.shown = 0;
    this.state.value = { found: [], looked: 0, done: false, busy: true, error: null };
    this.more();
  }

  // Shows a page more, and looks on until there is one.
  async more() {
    const turn = this.turn;
    const limit = this.state.peek().looked + LOOKED_MAX;
    this.shown += this.page;
    this.show({ busy: true, error: null });
    try {
      if (this.text && !this.seen.size && !isPattern(this.text)) await this.exact(turn);
      while (turn === this.turn && this.open.includes(true) && this.all.length < this.shown && this.state.peek().looked < limit) {
        await whileHidden();
        if (turn !== this.turn) break;
        const began = Date.now();
        await this.step(turn);
        // The server has as much time for others as this took.
        await wait(Date.now() - began);
      }
    } catch (error) {
      if (turn === this.turn) this.state.value = { ...this.state.peek(), error };
    }
    if (turn === this.turn) this.show({ busy: false });
  }

  show(change) {
    const done = !this.open.includes(true) && this.all.length <= this.shown;
    this.state.value = { ...this.state.peek(), found: this.all.slice(0, this.shown), done, ...change };
  }

  stop() {
    this.turn += 1;
    this.state.value = { ...this.state.peek(), busy: false };
  }

  // The key of just this name is found at once, however many others there are.
  async exact(turn) {
    const [type] = await run([["TYPE", this.text]], this.db);
    if (turn === this.turn && typeof type === "string" && this.asked.some((wanted) => wanted === null ? type !== "none" : wanted === type)) {
      this.add([this.text], type);
    }
  }

  async step(turn) {
    const asked = this.asked.map((type, at) => ({ type, at })).filter(({ at }) => this.open[at]);
    const calls = asked.map(({ type, at }) => [
      "SCAN", this.cursors[at], "MATCH", globOf(this.text), "COUNT", String(LOOKED_AT), ...(type ? ["TYPE", type] : []),
    ]);
    const replies = await run(calls, this.db);
    if (turn !== this.turn) return;
    replies.forEach((reply, index) => {
      if (reply instanceof Failure) throw reply;
      const { type, at } = asked[index];
      const [cursor, keys] = reply;
      this.cursors[at] = cursor;
      this.open[at] = cursor !== "0";
      this.add(keys, type);
    });
    this.show({ looked: this.state.peek().looked + LOOKED_AT });
  }

  add(keys, type) {
    const name = (key) => keyId(key) || asText(key);
    const fresh = keys.filter((key) => !this.seen.has(name(key)));
    fresh.forEach((key) => this.seen.add(name(key)));
    this.all.push(...fresh.map((key) => ({ key, type })));
    this.show({});
  }
}
