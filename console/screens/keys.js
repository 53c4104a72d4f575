// Keys: found by their beginning, and shown by their type, as much as fits.

import { effect, signal } from "../vendor/signals-core.module.js";
import { asText, call, Failure, keyId, keyOf, run } from "../api.js";
import { bytes, duration, number } from "../format.js";
import { html } from "../html.js";
import { knows, t } from "../lang.js";
import { ask, Facts, Key, notify, Panel, reason, Search, Table } from "../parts.js";
import { adjust, href, route, withParams } from "../route.js";
import { Scan } from "../scan.js";
import { Database } from "./locks.js";

const PAGE = 100;

// Elements of a value that are shown.
const SHOWN = 200;

// Bytes of a string that are shown. One more is asked for: the server cuts it off, between two characters.
const SHOWN_BYTES = 65536;

const TYPES = ["string", "list", "hash", "set", "zset", "stream", "lock", "gate", "stock"];

let scan = new Scan([null]);
let searched = null;
const rows = signal({});

effect(() => {
  const { screen, params } = route.value;
  if (screen !== "keys") {
    searched = null;
    scan.stop();
    return;
  }
  const wanted = JSON.stringify([params.get("q") || "", Number(params.get("db") || 0), params.get("type") || null]);
  if (wanted === searched) return;
  searched = wanted;
  const [text, db, type] = JSON.parse(wanted);
  scan.stop();
  scan.types = [type];
  rows.value = {};
  scan.begin(text, db, PAGE).then(() => lookUp(db));
});

// Types and times to live of the keys that were found.
async function lookUp(db) {
  const fresh = scan.state.peek().found.map(({ key }) => key).filter((key) => keyId(key) && !rows.peek()[keyId(key)]).slice(0, 200);
  if (!fresh.length) return;
  try {
    const replies = await run(fresh.flatMap((key) => [["TYPE", key], ["PTTL", key]]), db);
    const found = {};
    fresh.forEach((key, at) => (found[keyId(key)] = { type: replies[2 * at], ttl: replies[2 * at + 1] }));
    if (scan.db === db) rows.value = { ...rows.peek(), ...found };
  } catch (error) {
    notify(reason(error), true);
  }
}

const value = signal({ place: null });

// How each type is read: the calls, and what their replies mean.
const READERS = {
  string: (key) => [[["STRLEN", key], ["GETRANGE", key, "0", String(SHOWN_BYTES)]], ([length, text]) => ({ length, text })],
  list: (key) => [[["LLEN", key], ["LRANGE", key, "0", String(SHOWN - 1)]], ([length, items]) => ({ length, rows: items.map((item, at) => [at, item]) })],
  hash: (key) => [[["HLEN", key], ["HSCAN", key, "0", "COUNT", String(SHOWN)]], ([length, [, items]]) => ({ length, rows: pairs(items) })],
  set: (key) => [[["SCARD", key], ["SSCAN", key, "0", "COUNT", String(SHOWN)]], ([length, [, items]]) => ({ length, rows: items.map((item) => ["", item]) })],
  zset: (key) => [[["ZCARD", key], ["ZRANGE", key, "0", String(SHOWN - 1), "WITHSCORES"]], ([length, items]) => ({ length, rows: items.map(([member, score]) => [score, member]) })],
  stream: (key) => [[["XLEN", key], ["XREVRANGE", key, "+", "-", "COUNT", String(SHOWN)]], ([length, items]) => ({ length, rows: items.map(([id, fields]) => [id, pairs(fields).map(([name, text]) => `${asText(name)}: ${asText(text)}`).join("\n")]) })],
};

function pairs(items) {
  const found = [];
  for (let at = 0; at + 1 < items.length; at += 2) found.push([items[at], items[at + 1]]);
  return found.slice(0, SHOWN);
}

async function read(id, db) {
  const key = keyOf(id);
  const own = db + " " + id;
  value.value = { place: own };
  try {
    const [type, ttl, memory] = await run([["TYPE", key], ["PTTL", key], ["MEMORY", "USAGE", key, "SAMPLES", "5"]], db);
    if (type instanceof Failure) throw type;
    const reader = READERS[type] && READERS[type](key);
    const replies = reader ? await run(reader[0], db) : [];
    const failed = replies.find((reply) => reply instanceof Failure);
    if (failed) throw failed;
    if (place() === own) value.value = { place: own, type, ttl, memory, ...(reader ? reader[1](replies) : {}) };
  } catch (error) {
    if (place() === own) value.value = { place: own, error };
  }
}

const chosen = () => route.value.params.get("key");
const database = () => Number(route.value.params.get("db") || 0);

// Names the chosen key among those of all databases; null when the screen is left.
const place = () => (route.value.screen === "keys" && chosen() ? database() + " " + chosen() : null);

effect(() => {
  const wanted = place();
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
    },
  });
}

function ttlText(ttl) {
  if (ttl instanceof Failure || ttl === undefined) return "";
  return ttl === -1 ? t("ttl.none") : ttl === -2 ? t("ttl.gone") : duration(ttl);
}

function Detail({ id }) {
  const db = Number(route.value.params.get("db") || 0);
  const said = value.value.place === place() ? value.value : {};
  const { type, ttl, memory, length, error } = said;
  const isGrant = ["lock", "gate"].includes(type);
  const columns = [
    { name: { hash: t("col.field"), zset: t("col.score"), stream: t("col.id"), list: "#" }[type] || "", cell: ([name]) => html`<${Key} of=${name} />` },
    { name: t("col.value"), cell: ([, item]) => html`<span class="key">${asTextLines(item)}</span>` },
  ];
  return html`<div>
    <header class="panel"><div class="body tools">
      <div class="grow"><h2><${Key} of=${keyOf(id)} /></h2></div>
      <button class="is-quiet" onClick=${() => read(id, db)}>${t("again")}</button>
      <button class="is-bad" onClick=${() => remove(id, db)}>${t("delete.verb")}</button>
      <a class="button" href=${withParams({ key: "" })}>${t("close")}</a>
    </div></header>
    ${error ? html`<p class="empty bad">${reason(error)}</p>` : type === undefined ? html`<p class="empty">${t("loading")}</p>` : html`<${Panel}>
      <div class="body"><${Facts} of=${[
        [t("fact.type"), knows("type." + type) ? t("type." + type) : type],
        [t("fact.ttl"), ttlText(ttl)],
        length !== undefined && [type === "string" ? t("fact.bytes") : t("fact.elements"), number(length)],
        typeof memory === "number" && [t("fact.memory"), bytes(memory)],
      ]} /></div>
      ${isGrant && html`<p class="empty"><a href=${href("locks", { key: id, q: asText(keyOf(id)), db: db || "" })}>${t("keys.holders")}</a></p>`}
      ${type === "stock" && html`<p class="empty"><a href=${href("stocks", { key: id, q: asText(keyOf(id)), db: db || "" })}>${t("keys.holders")}</a></p>`}
      ${type === "string" && html`<div class="body"><pre class="value">${asTextLines(said.text)}</pre></div>`}
      ${said.rows && html`<${Table} columns=${columns} rows=${said.rows} empty=${t("keys.empty")} label=${asText(keyOf(id))} />`}
      ${length > SHOWN && type !== "string" && html`<p class="empty">${t("keys.cut", { n: number(SHOWN), all: number(length) })}</p>`}
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
  const { params } = route.value;
  const { found, looked, done, busy, error } = scan.state.value;
  const id = chosen();
  const db = Number(params.get("db") || 0);
  const columns = [
    { name: t("col.key"), cell: ({ key }) => html`<a href=${withParams({ key: keyId(key) })}><${Key} of=${key} /></a>` },
    { name: t("fact.type"), cell: ({ key }) => { const row = rows.value[keyId(key)]; return row && html`<span class="tag">${knows("type." + row.type) ? t("type." + row.type) : asText(row.type)}</span>`; } },
    { name: t("fact.ttl"), num: true, cell: ({ key }) => ttlText((rows.value[keyId(key)] || {}).ttl) },
  ];
  const more = () => scan.more(PAGE).then(() => lookUp(db));
  return html`
    <header><h1>${t("nav.keys")}</h1><span class="muted">${t("keys.about")}</span></header>
    <div class="tools">
      <${Search} value=${params.get("q") || ""} placeholder=${t("keys.search")} onSearch=${(q) => adjust({ q })} />
      <label><span class="hidden-text">${t("fact.type")}</span><select onChange=${(event) => adjust({ type: event.target.value })}>
        <option value="" selected=${!params.get("type")}>${t("keys.types")}</option>
        ${TYPES.map((type) => html`<option value=${type} selected=${type === params.get("type")}>${t("type." + type)}</option>`)}
      </select></label>
      <${Database} />
    </div>
    <div class=${"beside" + (id ? "" : " is-single")}>
      <${Panel}>
        <${Table} columns=${columns} rows=${found} id=${({ key }) => keyId(key)} selected=${id || undefined} address=${({ key }) => withParams({ key: keyId(key) })}
          empty=${busy ? t("scan.busy", { n: number(looked) }) : t("keys.none")} label=${t("nav.keys")} />
        <div class="body tools">
          <span class="muted">${error ? html`<span class="bad">${reason(error)}</span>` : busy ? t("scan.busy", { n: number(looked) }) : done ? t("scan.all", { n: number(found.length) }) : t("scan.some", { n: number(found.length) })}</span>
          ${busy && html`<button onClick=${() => scan.stop()}>${t("scan.stop")}</button>`}
          ${!busy && !done && html`<button onClick=${more}>${t("scan.more")}</button>`}
        </div>
      <//>
      ${id && html`<${Detail} id=${id} />`}
    </div>
  `;
}
