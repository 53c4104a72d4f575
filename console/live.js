// The stream of state. A page has one, for what its screen shows, and none while nobody sees the page.

import { batch, effect, signal } from "./vendor/signals-core.module.js";
import { askSession, askStream, keyId, session } from "./api.js";

// The state of each topic: an object of fields. A topic of which nothing is known is missing.
export const topics = signal({});

// What the server last said of itself, and when that was by this page's clock.
export const tick = signal(null);

// The state of the stream: "off", "opening", "open", "lost".
export const link = signal("off");

// Why the server shows nothing, if the stream was refused: an error, or null.
export const refusal = signal(null);

// The time by the server's clock, Unix ms. It moves once a second.
export const now = signal(Date.now());

// Which topics the screen wants, as a query; null for none.
export const wanted = signal(null);

const visible = signal(!document.hidden);
document.addEventListener("visibilitychange", () => (visible.value = !document.hidden));

// Waits until somebody can see the page.
export async function whileHidden() {
  while (document.hidden) await new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
}

// Keys of one topic, and characters of the query, that the server takes.
const KEYS_MAX = 100;
const QUERY_MAX = 24000;

// The ids of the rows that are in view, of tables that have ids.
const inView = signal(new Set());
const observer = new IntersectionObserver((entries) => {
  const next = new Set(inView.peek());
  for (const { isIntersecting, target } of entries) {
    if (isIntersecting) next.add(target.dataset.id);
    else next.delete(target.dataset.id);
  }
  inView.value = next;
});

// Notices whether a row is in view.
export function observe(row) {
  if (row) observer.observe(row);
}

// The query for a topic about keys: the chosen one first, then those found, as many as there is room for. Of very many
// it has those in view. A key that was cut, or is too long, is left out.
export function queryOf(name, db, chosen, found) {
  let ids = found.map(({ key }) => keyId(key));
  if (ids.length > KEYS_MAX) ids = ids.filter((id) => inView.value.has(id));
  ids = [...new Set([chosen, ...ids])].filter(Boolean);
  let query = "db=" + db;
  let count = 0;
  for (const id of ids) {
    const part = `&${name}=` + encodeURIComponent(id);
    if (count === KEYS_MAX || query.length + part.length > QUERY_MAX) continue;
    query += part;
    count += 1;
  }
  return count ? query : "";
}

const RETRY_MS = [500, 1000, 2000, 5000, 10000];
const attempt = signal(0);
let failures = 0;

// How far the server's clock is ahead of this one.
let aheadMs = 0;

// The time by the server's clock at this moment, for what a reply has just said.
export const serverNow = () => Date.now() + aheadMs;

setInterval(() => {
  if (visible.peek()) now.value = serverNow();
}, 1000);

// Topics whose fields are keys. The server names them by their places in the query.
const KEYED = ["who", "stocks", "queues"];

function take(name, data, query) {
  const said = JSON.parse(data);
  const before = topics.peek();
  const keys = KEYED.includes(name) ? new URLSearchParams(query).getAll(name) : null;
  // A field that is no number says something of the whole topic.
  const named = (at) => (keys ? keys[at] ?? at : at);
  const byKey = (fields) => Object.fromEntries(Object.entries(fields).map(([at, field]) => [named(at), field]));
  if (said.whole) {
    topics.value = { ...before, [name]: byKey(said.whole) };
    return;
  }
  const fields = { ...before[name], ...byKey(said.set) };
  for (const gone of said.gone) delete fields[named(gone)];
  topics.value = { ...before, [name]: fields };
}

function open(query) {
  const source = new EventSource("api/stream?" + query);
  let retry;
  let isOver = false;
  if (!failures) link.value = "opening";
  for (const name of ["overview", "events", "who", "stocks", "queues"]) {
    source.addEventListener(name, (event) => take(name, event.data, query));
  }
  source.addEventListener("tick", (event) => {
    const said = JSON.parse(event.data);
    aheadMs = said["now-ms"] - Date.now();
    batch(() => {
      tick.value = said;
      now.value = said["now-ms"];
      link.value = "open";
      refusal.value = null;
    });
  });
  const lost = async () => {
    link.value = "lost";
    // A browser gives up for good if the server answers with an error, so this page tries again by itself.
    const isRefused = source.readyState === EventSource.CLOSED;
    source.close();
    const why = isRefused ? await askStream(query) : null;
    if (isOver) return;
    refusal.value = why;
    const wait = RETRY_MS[Math.min(failures, RETRY_MS.length - 1)];
    failures += 1;
    retry = setTimeout(async () => {
      await askSession().catch(() => {});
      attempt.value = attempt.peek() + 1;
    }, wait);
  };
  source.onerror = lost;
  // The session is over, unless the server ends: then there is nothing to load the page from.
  source.addEventListener("over", lost);
  source.onopen = () => (failures = 0);
  return () => {
    isOver = true;
    clearTimeout(retry);
    source.close();
  };
}

// A search changes what is wanted with each key that it finds.
const SETTLE_MS = 200;
let database = null;

effect(() => {
  attempt.value;
  const query = wanted.value;
  if (query === null || !visible.value || !session.value) {
    link.value = "off";
    return undefined;
  }
  const db = new URLSearchParams(query).get("db");
  if (db !== database) {
    // Keys of another database have the same names.
    const { overview, events } = topics.peek();
    topics.value = { ...(overview && { overview }), ...(events && { events }) };
    database = db;
  }
  let close;
  const timer = setTimeout(() => (close = open(query)), SETTLE_MS);
  return () => {
    clearTimeout(timer);
    if (close) close();
  };
});
