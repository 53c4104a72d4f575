// Keys: found by their beginning, and shown by their type, as much as fits.

import { effect, signal } from "../vendor/signals-core.module.js";
import { asText, call, Failure, keyId, keyOf, run, runFitting } from "../api.js";
import { bytes, countdown, number } from "../format.js";
import { html } from "../html.js";
import { knows, t } from "../lang.js";
import { now, serverNow } from "../live.js";
import { ask, Facts, Finder, Found, Key, KeyHead, notify, Panel, reason, Table } from "../parts.js";
import { adjust, chosen, database, href, place, route, withParams } from "../route.js";
import { Scan } from "../scan.js";
import { depth, Memory } from "./memory.js";

// Elements of a value that are shown.
const SHOWN = 200;

// Bytes of a string that are shown. One more is asked for: the server cuts it off, between two characters.
const SHOWN_BYTES = 65536;

const TYPES = ["string", "list", "hash", "set", "zset", "stream", "lock", "gate", "stock"];

const scan = new Scan("keys", [null], 100);

// Types of the keys that were found, and when they expire.
const facts = signal({});

// Keys of a request.
const LOOKED_UP = 200;

effect(() => {
  const { found, busy } = scan.state.value;
  if (!found.length) facts.value = {};
  else if (!busy) lookUp(found.map(({ key }) => key), scan.db);
});

async function lookUp(keys, db) {
  const fresh = keys.filter((key) => keyId(key) && !facts.peek()[keyId(key)]).slice(0, LOOKED_UP);
  if (!fresh.length) return;
  try {
    const replies = await run(fresh.flatMap((key) => [["TYPE", key], ["PTTL", key]]), db);
    const found = {};
    fresh.forEach((key, at) => (found[keyId(key)] = { type: replies[2 * at], ends: endOf(replies[2 * at + 1]) }));
    if (scan.db === db) facts.value = { ...facts.peek(), ...found };
  } catch (error) {
    notify(reason(error), true);
  }
}

// When a key expires, by the server's clock: "never", "gone", or a time in Unix ms. Of what the user may not see, nothing.
function endOf(ttl) {
  if (typeof ttl !== "number") return undefined;
  return ttl === -1 ? "never" : ttl === -2 ? "gone" : serverNow() + ttl;
}

function leftUntil(ends) {
  if (ends === undefined) return "";
  if (ends === "never") return t("ttl.none");
  return ends === "gone" || ends <= now.value ? t("ttl.gone") : countdown(ends - now.value);
}

const typeOf = (type) => (type === "none" ? t("ttl.gone") : knows("type." + type) ? t("type." + type) : asText(type));

const value = signal({ place: null });

// How each type is read: the calls for so many elements, and what their replies mean.
const READERS = {
  string: (key) => [() => [["STRLEN", key], ["GETRANGE", key, "0", String(SHOWN_BYTES)]], ([length, text]) => ({ length, text })],
  list: (key) => [(count) => [["LLEN", key], ["LRANGE", key, "0", String(count - 1)]], ([length, items]) => ({ length, rows: items.map((item, at) => [at, item]) })],
  hash: (key) => [(count) => [["HLEN", key], ["HSCAN", key, "0", "COUNT", String(count)]], ([length, [, items]]) => ({ length, rows: pairs(items) })],
  set: (key) => [(count) => [["SCARD", key], ["SSCAN", key, "0", "COUNT", String(count)]], ([length, [, items]]) => ({ length, rows: items.map((item) => ["", item]) })],
  zset: (key) => [(count) => [["ZCARD", key], ["ZRANGE", key, "0", String(count - 1), "WITHSCORES"]], ([length, items]) => ({ length, rows: items.map(([member, score]) => [score, member]) })],
  stream: (key) => [(count) => [["XLEN", key], ["XREVRANGE", key, "+", "-", "COUNT", String(count)]], ([length, items]) => ({ length, rows: items.map(([id, fields]) => [id, pairs(fields).map(([name, text]) => `${asText(name)}: ${asText(text)}`).join("\n")]) })],
};

function pairs(items) {
  const found = [];
  for (let at = 0; at + 1 < items.length; at += 2) found.push([items[at], items[at + 1]]);
  return found;
}

async function read(id, db) {
  const key = keyOf(id);
  const own = db + " " + id;
  const show = (said) => place("keys") === own && (value.value = { place: own, ...said });
  show({});
  try {
    const [type, ttl, memory] = await run([["TYPE", key], ["PTTL", key], ["MEMORY", "USAGE", key, "SAMPLES", "5"]], db);
    if (type instanceof Failure) throw type;
    const ends = endOf(ttl);
    if (!READERS[type]) return show({ type, ends, memory });
    const [callsOf, meaning] = READERS[type](key);
    const [replies] = await runFitting(callsOf, SHOWN, db);
    const failed = replies.find((reply) => reply instanceof Failure);
    if (failed) throw failed;
    const said = meaning(replies);
    // A scan may return more than it was asked for.
    show({ type, ends, memory, ...said, rows: said.rows && said.rows.slice(0, SHOWN) });
  } catch (error) {
    show({ error });
  }
}

effect(() => {
  const wanted = place("keys");
  if (!wanted) value.value = { place: null };
  else if (value.peek().place !== wanted) read(chosen(), database());
});

function remove(id, db) {
  ask({
    title: t("delete.title"),
    body: html`<p>${t("delete.body")}</p><p><${Key} of=${keyOf(id)} /></p>`,
    verb: t("delete.verb"),
    isBad: true,
    act: async () => {
      const count = await call(["UNLINK", keyOf(id)], db);
      notify(count ? t("delete.done") : t("delete.gone"));
      read(id, db);
      const { [id]: _, ...others } = facts.peek();
      facts.value = others;
      lookUp([keyOf(id)], db);
    },
  });
}

function Detail({ id }) {
  const db = database();
  const { type, ends, memory, length, text, rows, error } = value.value.place === place("keys") ? value.value : {};
  const isGrant = ["lock", "gate"].includes(type);
  const columns = [
    { name: { hash: t("col.field"), zset: t("col.score"), stream: t("col.id"), list: "#" }[type] || "", cell: ([name]) => html`<${Key} of=${name} />` },
    { name: t("col.value"), cell: ([, item]) => html`<span class="key">${asTextLines(item)}</span>` },
  ];
  return html`<div>
    <${KeyHead} id=${id}>
      <button class="is-quiet" onClick=${() => read(id, db)}>${t("again")}</button>
      <button class="is-bad" onClick=${() => remove(id, db)}>${t("delete.verb")}</button>
    <//>
    ${error ? html`<p class="empty bad">${reason(error)}</p>` : type === undefined ? html`<p class="empty">${t("loading")}</p>` : type === "none" ? html`<p class="empty">${t("keys.gone")}</p>` : html`<${Panel}>
      <div class="body"><${Facts} of=${[
        [t("fact.type"), typeOf(type)],
        [t("fact.ttl"), leftUntil(ends)],
        length !== undefined && [type === "string" ? t("fact.bytes") : t("fact.elements"), number(length)],
        typeof memory === "number" && [t("fact.memory"), bytes(memory)],
      ]} /></div>
      ${isGrant && html`<p class="empty"><a href=${href("locks", { key: id, q: asText(keyOf(id)), db: db || "" })}>${t("keys.holders")}</a></p>`}
      ${type === "stock" && html`<p class="empty"><a href=${href("stocks", { key: id, q: asText(keyOf(id)), db: db || "" })}>${t("keys.holders")}</a></p>`}
      ${type === "string" && html`<div class="body"><pre class="value">${asTextLines(text)}</pre></div>`}
      ${rows && html`<${Table} columns=${columns} rows=${rows} empty=${t("keys.empty")} label=${asText(keyOf(id))} />`}
      ${rows && length > rows.length && html`<p class="empty">${t("keys.cut", { n: number(rows.length), all: number(length) })}</p>`}
      ${type === "string" && length > SHOWN_BYTES && html`<p class="empty">${t("keys.cut-bytes", { n: bytes(SHOWN_BYTES), all: bytes(length) })}</p>`}
    <//>`}
  </div>`;
}

// A text of several lines, each with its invisible characters shown.
function asTextLines(text) {
  if (text && typeof text === "object" && "cut" in text) return asTextLines(text.cut) + "…";
  return typeof text === "string" ? text.split("\n").map(asText).join("\n") : asText(text);
}

export function Screen() {
  const type = route.value.params.get("type");
  const id = chosen();
  const row = ({ key }) => facts.value[keyId(key)] || {};
  const columns = [
    { name: t("col.key"), cell: ({ key }) => html`<a href=${withParams({ key: keyId(key) })}><${Key} of=${key} /></a>` },
    { name: t("fact.type"), cell: (found) => row(found).type && html`<span class="tag">${typeOf(row(found).type)}</span>` },
    { name: t("fact.ttl"), num: true, cell: (found) => leftUntil(row(found).ends) },
  ];
  return html`
    <header><h1>${t("nav.keys")}</h1><span class="muted">${t("keys.about")}</span></header>
    <${Finder} placeholder=${t("keys.search")}>
      <label><span class="hidden-text">${t("fact.type")}</span><select onChange=${(event) => adjust({ type: event.target.value })}>
        <option value="" selected=${!type}>${t("keys.types")}</option>
        ${TYPES.map((name) => html`<option value=${name} selected=${name === type}>${t("type." + name)}</option>`)}
      </select></label>
      <button aria-expanded=${String(Boolean(depth()))} onClick=${() => adjust({ by: depth() ? "" : 1 })}>${t("memory.title")}</button>
    <//>
    <${Memory} />
    <div class=${"beside" + (id ? "" : " is-single")}>
      <${Found} scan=${scan} none=${t(type ? "keys.none-of-type" : "keys.none")} columns=${columns} rows=${scan.state.value.found} label=${t("nav.keys")} />
      ${id && html`<${Detail} id=${id} />`}
    </div>
  `;
}
