// Memory by prefix: a sample of the keys that are looked for, by the parts of their names in front of colons.

import { effect, signal } from "../vendor/signals-core.module.js";
import { asText, Failure, keyId, run } from "../api.js";
import { bytes, number } from "../format.js";
import { html } from "../html.js";
import { t } from "../lang.js";
import { whileHidden } from "../live.js";
import { Panel, reason, Share, Table } from "../parts.js";
import { adjust, database, isShown, route, withParams } from "../route.js";
import { globOf, isPattern, LOOKED_AT, wait } from "../scan.js";

// Keys that are measured before the reader is asked whether to go on, and keys that are looked at for them.
const MEASURED_MAX = 20000;
const LOOKED_MAX = 500000;

// Keys of one request, and elements of each that its size is estimated from.
const MEASURED_AT_A_TIME = 500;
const SAMPLES = "5";

// Prefixes that are told apart, and those on the screen. The others are one row.
const GROUPS_MAX = 5000;
const GROUPS_SHOWN = 50;

// How many parts of a name a prefix may have.
const DEPTHS = [1, 2, 3, 4];

const sample = signal(null);
let turn = 0;
let wanted = null;

// By how many parts keys are grouped; null if nobody asks.
export function depth() {
  const by = Number(route.value.params.get("by"));
  return DEPTHS.includes(by) ? by : null;
}

effect(() => {
  const { params } = route.value;
  const asked = isShown("keys") && depth() ? JSON.stringify([params.get("q") || "", params.get("type") || "", database()]) : null;
  if (asked === wanted) return;
  wanted = asked;
  turn += 1;
  sample.value = null;
  if (asked) begin(...JSON.parse(asked));
});

function begin(text, type, db) {
  const groups = new Map(DEPTHS.map((depth) => [depth, new Map()]));
  sample.value = { text, type, db, groups, cursor: "0", keys: 0, bytes: 0, looked: 0, all: null, leftOut: 0, fault: null, done: false, busy: false, error: null };
  more();
}

const show = (change) => (sample.value = { ...sample.peek(), ...change });

function stop() {
  turn += 1;
  show({ busy: false });
}

// Measures on, until there is enough for one look.
async function more() {
  const own = (turn += 1);
  const { keys, looked } = sample.peek();
  const isEnough = () => sample.peek().done || sample.peek().keys >= keys + MEASURED_MAX || sample.peek().looked >= looked + LOOKED_MAX;
  show({ busy: true, error: null });
  try {
    while (own === turn && !isEnough()) {
      // The server has as much time for others as each request took.
      const ask = async (calls) => {
        await whileHidden();
        const began = Date.now();
        const replies = await run(calls, sample.peek().db);
        await wait(Date.now() - began);
        return own === turn ? replies : null;
      };
      await step(ask);
    }
    if (own === turn) show({ busy: false });
  } catch (error) {
    if (own === turn) show({ busy: false, error });
  }
}

// Asks for some keys, and measures them. `ask` returns null if nobody waits for its answer any more.
async function step(ask) {
  const { text, type, cursor } = sample.peek();
  // Of keys that match, few may be among many.
  const count = text || type ? LOOKED_AT : MEASURED_AT_A_TIME;
  const found = await ask([["SCAN", cursor, "MATCH", globOf(text), "COUNT", String(count), ...(type ? ["TYPE", type] : [])], ["DBSIZE"]]);
  if (!found) return;
  const [page, all] = found;
  if (page instanceof Failure) throw page;
  const [next, keys] = page;
  for (let at = 0; at < keys.length; at += MEASURED_AT_A_TIME) {
    const some = keys.slice(at, at + MEASURED_AT_A_TIME).filter((key) => keyId(key));
    const sizes = await ask(some.map((key) => ["MEMORY", "USAGE", key, "SAMPLES", SAMPLES]));
    if (!sizes) return;
    some.forEach((key, at) => add(key, sizes[at]));
    show({});
  }
  show({ cursor: next, done: next === "0", looked: sample.peek().looked + count, all: typeof all === "number" ? all : null });
}

function add(key, size) {
  const state = sample.peek();
  if (size instanceof Failure) {
    state.leftOut += 1;
    state.fault = state.fault || size;
  }
  // A key that has ended in the meantime has no size.
  if (typeof size !== "number") return;
  state.keys += 1;
  state.bytes += size;
  const name = asText(key);
  for (const [depth, groups] of state.groups) {
    const prefix = prefixOf(name, depth);
    const of = groups.has(prefix) || groups.size < GROUPS_MAX ? prefix : null;
    const group = groups.get(of) || { prefix: of, keys: 0, bytes: 0 };
    group.keys += 1;
    group.bytes += size;
    groups.set(of, group);
  }
}

// So many parts of a name with their colons, or as many as it has.
function prefixOf(name, depth) {
  let end = 0;
  for (let part = 0; part < depth; part += 1) {
    const colon = name.indexOf(":", end);
    if (colon < 0) break;
    end = colon + 1;
  }
  return name.slice(0, end);
}

// The largest groups, and all others as one, whose prefix is null.
function rowsOf(groups) {
  const named = [...groups.values()].filter(({ prefix }) => prefix !== null).sort((a, b) => b.bytes - a.bytes);
  const others = [...named.slice(GROUPS_SHOWN), ...(groups.has(null) ? [groups.get(null)] : [])];
  const total = (name) => others.reduce((all, group) => all + group[name], 0);
  return [...named.slice(0, GROUPS_SHOWN), ...(others.length ? [{ prefix: null, keys: total("keys"), bytes: total("bytes") }] : [])];
}

// A prefix leads to its keys, by one part more. One that reads like a pattern, or is not what its key has, leads nowhere.
function Prefix({ of, depth }) {
  if (of === null) return html`<span class="muted">${t("memory.others")}</span>`;
  if (of === "") return html`<span class="muted">${t("memory.bare")}</span>`;
  const text = html`<span class="key">${of}</span>`;
  if (isPattern(of) || of.includes("\\")) return text;
  return html`<a href=${withParams({ q: of, by: Math.min(depth + 1, DEPTHS.at(-1)), key: "" })}>${text}</a>`;
}

export function Memory() {
  if (!sample.value || !depth()) return null;
  const { groups, keys, bytes: measured, all, leftOut, fault, done, busy, error } = sample.value;
  const columns = [
    { name: t("memory.prefix"), cell: (row) => html`<${Prefix} of=${row.prefix} depth=${depth()} />` },
    { name: t("fact.keys"), num: true, cell: (row) => number(row.keys) },
    { name: t("col.memory"), num: true, cell: (row) => bytes(row.bytes) },
    { name: t("memory.share"), cell: (row) => html`<${Share} of=${measured ? row.bytes / measured : 0} />` },
    { name: t("memory.mean"), num: true, cell: (row) => bytes(row.bytes / row.keys) },
  ];
  const tools = html`<label class="check"><span>${t("memory.parts")}</span><select onChange=${(event) => adjust({ by: event.target.value })}>
      ${DEPTHS.map((count) => html`<option value=${count} selected=${count === depth()}>${count}</option>`)}
    </select></label>
    <button class="is-quiet" onClick=${() => adjust({ by: "" })}>${t("close")}</button>`;
  const far = t(all === null ? "memory.measured" : "memory.measured-of", { n: number(keys), all: number(all), bytes: bytes(measured) });
  return html`<${Panel} title=${t("memory.title")} tools=${tools}>
    ${(keys > 0 || done) && html`<${Table} columns=${columns} rows=${rowsOf(groups.get(depth()))} id=${(row) => String(row.prefix)} empty=${t("memory.none")} label=${t("memory.title")} />`}
    <div class="body tools">
      <span class="muted" role="status">${far} ${busy ? t("memory.busy") : done ? t("memory.done") : ""}</span>
      ${busy && html`<button onClick=${stop}>${t("scan.stop")}</button>`}
      ${!busy && !done && html`<button onClick=${more}>${t("scan.more")}</button>`}
    </div>
    ${leftOut > 0 && html`<p class="empty bad">${t("memory.left-out", { n: number(leftOut), text: reason(fault) })}</p>`}
    ${error && html`<p class="empty bad">${reason(error)}</p>`}
    <p class="empty">${t("memory.about", { n: number(MEASURED_MAX) })}</p>
  <//>`;
}
