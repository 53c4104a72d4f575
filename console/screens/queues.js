// Queues: groups and how far behind they are, consumers, dead letters, and messages for later.

import { effect, signal } from "../vendor/signals-core.module.js";
import { asText, call, Failure, keyId, keyOf, run } from "../api.js";
import { clock, duration, number } from "../format.js";
import { html } from "../html.js";
import { t } from "../lang.js";
import { queryOf, topics, whileHidden } from "../live.js";
import { ask, Fault, Key, notify, Panel, reason, Search, Table } from "../parts.js";
import { adjust, route, withParams } from "../route.js";
import { Scan } from "../scan.js";
import { Database } from "./locks.js";

const PAGE = 50;

// Entries that are looked through before the reader is asked whether to go on.
const LETTERS_MAX = 50000;

// Entries of a request.
const LETTERS_AT_A_TIME = 1000;

// Dead letters on the screen.
const LETTERS_SHOWN = 100;

const scan = new Scan(["stream"]);
let searched = null;

effect(() => {
  const { screen, params } = route.value;
  if (screen !== "queues") {
    searched = null;
    scan.stop();
    return;
  }
  const wanted = JSON.stringify([params.get("q") || "", Number(params.get("db") || 0)]);
  if (wanted !== searched) {
    searched = wanted;
    scan.begin(...JSON.parse(wanted), PAGE);
  }
});

const chosen = () => route.value.params.get("key");
const database = () => Number(route.value.params.get("db") || 0);

// Names the chosen stream among those of all databases; null when the screen is left.
const place = () => (route.value.screen === "queues" && chosen() ? database() + " " + chosen() : null);

export const query = () => queryOf("queues", database(), chosen(), scan.state.value.found);

const stateOf = (id) => topics.value.queues && topics.value.queues[id];

const sum = (groups, name) => groups.reduce((all, group) => all + (Number(group[name]) || 0), 0);

// Whatever is read once when a stream is chosen.
const detail = signal({ place: null });
// The dead letters: those found, how many entries were looked at, and where to go on.
const letters = signal({ place: null });

effect(() => {
  const wanted = place();
  const text = route.value.params.get("find") || "";
  if (!wanted) {
    detail.value = { place: null };
    letters.value = { place: null };
    return;
  }
  if (detail.peek().place !== wanted) readDetail(chosen(), database());
  const known = letters.peek();
  if (known.place !== wanted || known.text !== text) readLetters(chosen(), text, database());
});

async function readDetail(id, db) {
  const own = db + " " + id;
  detail.value = { place: own };
  try {
    const groups = await call(["XINFO", "GROUPS", keyOf(id)], db);
    const replies = await run([["XDELAY.LIST", keyOf(id), "COUNT", "20"], ...groups.map((group) => ["XINFO", "CONSUMERS", keyOf(id), group.name])], db);
    const [delayed, ...consumers] = replies;
    if (place() !== own) return;
    const rows = consumers.flatMap((list, at) => (list instanceof Failure ? [] : list.map((consumer) => ({ ...consumer, group: groups[at].name }))));
    const failed = replies.find((reply) => reply instanceof Failure);
    detail.value = { place: own, consumers: rows, delayed: delayed instanceof Failure ? [] : delayed[1], failed };
  } catch (error) {
    if (place() === own) detail.value = { place: own, error };
  }
}

function fieldsOf(list) {
  const fields = {};
  for (let at = 0; at + 1 < list.length; at += 2) fields[asText(list[at])] = list[at + 1];
  return fields;
}

// Looks through the stream for dead letters whose fields hold the text. It goes on in the background, some at a time.
async function readLetters(id, text, db, known = { found: [], looked: 0, start: "-" }) {
  const own = { place: db + " " + id, text, ...known, busy: true };
  letters.value = own;
  const isCurrent = () => place() === own.place && letters.peek().place === own.place && letters.peek().text === text;
  let { start, looked } = known;
  try {
    for (const end = looked + LETTERS_MAX; looked < end; ) {
      await whileHidden();
      if (!isCurrent()) return;
      const entries = await call(["XRANGE", keyOf(id), start, "+", "COUNT", String(LETTERS_AT_A_TIME)], db);
      if (!isCurrent()) return;
      looked += entries.length;
      const fresh = entries.map(([entry, list]) => ({ entry, fields: fieldsOf(list) })).filter(({ fields }) => "dlq-stream" in fields);
      const matching = fresh.filter(({ entry, fields }) => !text || entry.includes(text) || Object.entries(fields).some(([name, value]) => `${name}: ${asText(value)}`.includes(text)));
      own.found = own.found.concat(matching);
      // A stream without any at its beginning is no queue of dead letters.
      const isOther = looked > 0 && !own.found.length && !fresh.length;
      const isOver = entries.length < LETTERS_AT_A_TIME || isOther;
      letters.value = { ...own, looked, start: "-", busy: !isOver };
      if (isOver) return;
      start = "(" + entries[entries.length - 1][0];
    }
    letters.value = { ...letters.peek(), busy: false, start };
  } catch (error) {
    if (isCurrent()) letters.value = { ...own, busy: false, error };
  }
}

// Puts dead letters back, each by its id, so that no other takes its place.
function redrive(id, rows) {
  const db = database();
  ask({
    title: t("redrive.title", { n: number(rows.length) }),
    body: html`<p>${t("redrive.body")}</p>
      <ul class="mono">${rows.slice(0, 5).map(({ entry, fields }) => html`<li>${entry} → ${asText(fields["dlq-stream"])} <span class="muted">${summary(fields).slice(0, 80)}</span></li>`)}</ul>
      ${rows.length > 5 && html`<p class="muted">${t("more", { n: number(rows.length - 5) })}</p>`}`,
    verb: t("redrive.verb"),
    act: async () => {
      let moved = 0;
      for (let at = 0; at < rows.length; at += 200) {
        const calls = rows.slice(at, at + 200).map(({ entry, fields }) => ["XDLQ.REDRIVE", keyOf(id), fields["dlq-stream"], "START", entry, "END", entry, "COUNT", "1"]);
        for (const reply of await run(calls, db)) {
          if (reply instanceof Failure) throw reply;
          moved += reply[1].redriven;
        }
      }
      notify(t("redrive.done", { n: number(moved) }));
      readLetters(id, route.value.params.get("find") || "", db);
    },
  });
}

function summary(fields) {
  return Object.entries(fields)
    .filter(([name]) => !name.startsWith("dlq-"))
    .map(([name, value]) => `${name}: ${asText(value)}`)
    .join("  ");
}

function Letters({ id }) {
  const { found = [], looked = 0, busy, error, start = "-" } = letters.value.place === place() ? letters.value : {};
  const isCut = !busy && start !== "-";
  const goOn = () => readLetters(id, text, database(), { found, looked, start });
  const text = route.value.params.get("find") || "";
  if (error) return html`<${Panel} title=${t("queues.dead")}><p class="empty bad">${reason(error)}</p><//>`;
  if (!found.length && !text) return null;
  const columns = [
    { name: t("col.id"), cell: ({ entry }) => html`<span class="mono nowrap">${entry}</span>` },
    { name: t("queues.from"), cell: ({ fields }) => html`<${Key} of=${fields["dlq-stream"]} /> <span class="muted">${asText(fields["dlq-group"])}</span>` },
    { name: t("queues.deliveries"), num: true, cell: ({ fields }) => asText(fields["dlq-deliveries"]) },
    { name: t("col.when"), cell: ({ fields }) => html`<span class="nowrap">${fields["dlq-time"] ? clock(fields["dlq-time"]) : ""}</span>` },
    { name: t("col.message"), cell: ({ fields }) => html`<span class="key">${summary(fields)}</span>` },
    { name: html`<span class="hidden-text">${t("col.action")}</span>`, cell: (row) => html`<button onClick=${() => redrive(id, [row])}>${t("redrive.verb")}</button>` },
  ];
  const tools = html`<button disabled=${!found.length || busy} onClick=${() => redrive(id, found)}>${t("redrive.all", { n: number(found.length) })}</button>`;
  return html`<${Panel} title=${t("queues.dead")} tools=${tools}>
    <div class="body tools"><${Search} value=${text} placeholder=${t("queues.find")} onSearch=${(find) => adjust({ find })} /></div>
    <${Table} columns=${columns} rows=${found.slice(0, LETTERS_SHOWN)} id=${({ entry }) => entry} empty=${busy ? t("scan.busy", { n: number(looked) }) : t("queues.none-dead")} />
    <p class="empty">${busy ? t("scan.busy", { n: number(looked) }) : t("queues.looked", { n: number(found.length), looked: number(looked) })} ${isCut && html`<button onClick=${goOn}>${t("scan.more")}</button>`} ${found.length > LETTERS_SHOWN ? t("keys.cut", { n: number(LETTERS_SHOWN), all: number(found.length) }) : ""}</p>
  <//>`;
}

function Detail({ id }) {
  const state = stateOf(id);
  const { consumers = [], delayed = [], failed, error } = detail.value.place === place() ? detail.value : {};
  const head = html`<header class="panel"><div class="body tools">
    <div class="grow"><h2><${Key} of=${keyOf(id)} /></h2><span class="muted">${state && !state.error ? t("queues.entries", { n: number(state.length) }) : ""}</span></div>
    <a class="button" href=${withParams({ key: "", find: "" })}>${t("close")}</a>
  </div></header>`;
  if (!state) return html`<div>${head}<p class="empty">${t("loading")}</p></div>`;
  if (state.error) return html`<div>${head}<p class="empty bad">${reason(new Failure(state.error))}</p></div>`;
  const groups = [
    { name: t("queues.group"), cell: (row) => html`<${Key} of=${row.name} />` },
    { name: t("queues.consumers"), num: true, cell: (row) => number(row.consumers) },
    { name: t("queues.pending"), num: true, cell: (row) => number(row.pending) },
    { name: t("queues.lag"), num: true, cell: (row) => (row.lag === null ? "–" : number(row.lag)) },
    {
      name: t("queues.policy"),
      cell: (row) =>
        row.policy
          ? html`${t("queues.policy.is", { idle: duration(row.policy.idle), n: row.policy["max-deliveries"] || "∞" })}${row.policy.dlq ? html` → <a href=${withParams({ key: keyId(row.policy.dlq), find: "" })}><${Key} of=${row.policy.dlq} /></a>` : ""}
              ${row.policy.exhausted > 0 && html` <span class="tag is-bad">${t("queues.exhausted", { n: number(row.policy.exhausted) })}</span>`}`
          : html`<span class="muted">${t("queues.policy.none")}</span>`,
    },
  ];
  const people = [
    { name: t("queues.group"), cell: (row) => html`<${Key} of=${row.group} />` },
    { name: t("queues.consumer"), cell: (row) => html`<${Key} of=${row.name} />` },
    { name: t("queues.pending"), num: true, cell: (row) => number(row.pending) },
    { name: t("queues.idle"), num: true, cell: (row) => html`<span class=${row.pending > 0 && row.idle > 60000 ? "warn" : ""}>${duration(row.idle)}</span>` },
  ];
  const later = [
    { name: t("col.id"), cell: (row) => html`<span class="mono nowrap">${row.id}</span>` },
    { name: t("queues.in"), num: true, cell: (row) => duration(row["delay-ms"]) },
    { name: t("col.message"), cell: (row) => html`<span class="key">${summary(Array.isArray(row.fields) ? fieldsOf(row.fields) : row.fields)}</span>` },
  ];
  return html`<div>${head}
    <${Letters} id=${id} />
    <${Panel} title=${t("queues.groups")}><${Table} columns=${groups} rows=${state.groups || []} id=${(row) => asText(row.name)} empty=${t("queues.no-groups")} /><//>
    ${(failed || error) && html`<p class="empty bad">${reason(failed || error)}</p>`}
    ${consumers.length > 0 && html`<${Panel} title=${t("queues.consumers")} tools=${html`<button class="is-quiet" onClick=${() => readDetail(id, database())}>${t("again")}</button>`}><${Table} columns=${people} rows=${consumers} id=${(row) => asText(row.group) + " " + asText(row.name)} empty="" label=${t("queues.consumers")} /><//>`}
    ${delayed.length > 0 && html`<${Panel} title=${t("queues.later")}><${Table} columns=${later} rows=${delayed} id=${(row) => row.id} empty="" label=${t("queues.later")} /><//>`}
  </div>`;
}

export function Screen() {
  const { params } = route.value;
  const { found, looked, done, busy, error } = scan.state.value;
  const id = chosen();
  const rows = found.map(({ key }) => ({ key, id: keyId(key), state: stateOf(keyId(key)) || {} }));
  const groups = (row) => (Array.isArray(row.state.groups) ? row.state.groups : []);
  const columns = [
    { name: t("col.key"), cell: (row) => html`<a href=${withParams({ key: row.id, find: "" })}><${Key} of=${row.key} /></a><${Fault} of=${row.state} />` },
    { name: t("queues.length"), num: true, cell: (row) => (row.state.length === undefined ? "" : number(row.state.length)) },
    { name: t("queues.groups"), num: true, cell: (row) => (row.state.groups ? number(groups(row).length) : "") },
    { name: t("queues.pending"), num: true, cell: (row) => (row.state.groups ? number(sum(groups(row), "pending")) : "") },
    { name: t("queues.lag"), num: true, cell: (row) => (row.state.groups ? number(sum(groups(row), "lag")) : "") },
  ];
  return html`
    <header><h1>${t("nav.queues")}</h1><span class="muted">${t("queues.about")}</span></header>
    <div class="tools">
      <${Search} value=${params.get("q") || ""} placeholder=${t("queues.search")} onSearch=${(q, isWhole) => adjust({ q, ...(isWhole && q && !/[*?[]/.test(q) ? { key: "t:" + q, find: "" } : {}) })} />
      <${Database} />
    </div>
    <div class=${"beside" + (id ? "" : " is-single")}>
      <${Panel}>
        <${Table} columns=${columns} rows=${rows} id=${(row) => row.id} selected=${id || undefined} address=${(row) => withParams({ key: row.id, find: "" })}
          empty=${busy ? t("scan.busy", { n: number(looked) }) : t("queues.none")} label=${t("nav.queues")} />
        <div class="body tools">
          <span class="muted">${error ? html`<span class="bad">${reason(error)}</span>` : busy ? t("scan.busy", { n: number(looked) }) : done ? t("scan.all", { n: number(found.length) }) : t("scan.some", { n: number(found.length) })}</span>
          ${busy && html`<button onClick=${() => scan.stop()}>${t("scan.stop")}</button>`}
          ${!busy && !done && html`<button onClick=${() => scan.more(PAGE)}>${t("scan.more")}</button>`}
        </div>
      <//>
      ${id && html`<${Detail} id=${id} />`}
    </div>
  `;
}
