// Queues: groups and how far behind they are, consumers, dead letters, and messages for later.

import { effect, signal } from "../vendor/signals-core.module.js";
import { asText, call, Failure, keyId, keyOf, run, runFitting } from "../api.js";
import { clock, duration, number } from "../format.js";
import { html } from "../html.js";
import { t } from "../lang.js";
import { now, queryOf, serverNow, topics, whileHidden } from "../live.js";
import { actions, ask, Fault, Finder, Found, Key, KeyHead, notify, Panel, reason, Search, Table } from "../parts.js";
import { adjust, chosen, database, place, route, withParams } from "../route.js";
import { Scan } from "../scan.js";

// Entries that are looked through before the reader is asked whether to go on.
const LETTERS_MAX = 50000;

// Entries of the first request, which shows whether these are dead letters at all, and of each further one.
const LETTERS_AT_FIRST = 100;
const LETTERS_AT_A_TIME = 1000;

// Dead letters on the screen.
const LETTERS_SHOWN = 100;

// Messages for later on the screen.
const LATER_SHOWN = 20;

// The time from a change of a stream until it is read again, with all that has changed by then.
const REFRESH_MS = 1000;

// The time after which everything is read again even if nothing that is watched has changed: a consumer that asks for
// messages changes none of it, nor does an entry that takes the place of a removed one.
const DETAIL_MS = 5000;

const scan = new Scan("queues", ["stream"], 50);

export const query = () => queryOf("queues", database(), chosen(), scan.state.value.found);

const stateOf = (id) => topics.value.queues && topics.value.queues[id];

// The total of all groups; null if it is unknown of one of them.
const sum = (groups, name) => groups.reduce((all, group) => (all === null || group[name] === null ? null : all + Number(group[name])), 0);

const hereOf = (id, db) => db + " " + id;
const find = () => route.value.params.get("find") || "";
const isDenied = (error) => Boolean(error && error.isDenied);

// Consumers, and messages for later.
const detail = signal({ place: null });

// The dead letters: those found, how many entries were looked at, and where to go on.
const letters = signal({ place: null });
const BEGINNING = { found: [], looked: 0, start: "-" };
let turn = 0;
let reading = null;

effect(() => {
  const wanted = place("queues");
  const text = find();
  if (!wanted) {
    turn += 1;
    detail.value = { place: null };
    letters.value = { place: null };
    return;
  }
  if (detail.peek().place !== wanted) {
    detail.value = { place: wanted };
    readDetail(chosen(), database());
  }
  const known = letters.peek();
  if (known.place !== wanted || known.text !== text) readLetters(chosen(), text, database());
});

// The stream has changed, so what was read of it is old. Very many dead letters are read again when the reader asks.
let refreshing = null;
let seen = null;
let readMs = 0;

effect(() => {
  if (!place("queues")) return;
  const state = stateOf(chosen());
  if (state !== seen) refreshing = refreshing || setTimeout(refresh, REFRESH_MS);
  else if (now.value > readMs + DETAIL_MS) refresh();
  seen = state;
});

// Asks for nothing that the user may not see: each refusal is noted in ACL LOG.
function refresh() {
  clearTimeout(refreshing);
  refreshing = null;
  readMs = serverNow();
  if (!place("queues")) return;
  const { consumers, error } = detail.peek();
  if (consumers || !isDenied(error)) readDetail(chosen(), database());
  const { looked, error: refusal } = letters.peek();
  if (reading !== turn && !isDenied(refusal) && !(looked > LETTERS_AT_FIRST)) {
    readLetters(chosen(), find(), database(), BEGINNING, true);
  }
}

async function readDetail(id, db) {
  const own = hereOf(id, db);
  readMs = serverNow();
  const show = (said) => place("queues") === own && (detail.value = { place: own, ...said });
  try {
    const groups = await call(["XINFO", "GROUPS", keyOf(id)], db);
    const people = groups.map((group) => ["XINFO", "CONSUMERS", keyOf(id), group.name]);
    const { place: known, denied = [] } = detail.peek();
    const refused = known === own ? denied : [];
    const later = (count) => (refused.length ? [] : [["XDELAY.LIST", keyOf(id), "COUNT", String(count)]]);
    const [asked] = await runFitting((count) => [...later(count), ...people], LATER_SHOWN, db);
    const at = serverNow();
    const replies = [...refused, ...asked];
    const [delayed, ...lists] = replies.map((reply) => (reply instanceof Failure ? [] : reply));
    show({
      consumers: lists.flatMap((list, group) => list.map((one) => ({ ...one, group: groups[group].name, sinceMs: at - one.idle }))),
      delayed: (delayed[1] || []).map((message) => ({ ...message, dueMs: at + message["delay-ms"] })),
      error: replies.find((reply) => reply instanceof Failure),
      denied: replies.slice(0, 1).filter(isDenied),
    });
  } catch (error) {
    show({ error });
  }
}

const linesOf = (fields) => Object.entries(fields).map(([name, value]) => `${name}: ${asText(value)}`);

function fieldsOf(list) {
  const fields = {};
  for (let at = 0; at + 1 < list.length; at += 2) fields[asText(list[at])] = list[at + 1];
  return fields;
}

// Looks through the stream for dead letters whose fields hold the text. It goes on in the background, some at a time.
// What is read again quietly is shown when all of it is there.
async function readLetters(id, text, db, from = BEGINNING, isQuiet = false) {
  const own = hereOf(id, db);
  if (place("queues") !== own) return;
  const mine = (turn += 1);
  reading = mine;
  let { found, looked, start } = from;
  const show = (said) => (letters.value = { place: own, text, found, looked, start, ...said });
  if (!isQuiet) show({ busy: true });
  let [most, count] = [LETTERS_AT_A_TIME, looked ? LETTERS_AT_A_TIME : LETTERS_AT_FIRST];
  try {
    for (const end = looked + LETTERS_MAX; looked < end; ) {
      await whileHidden();
      if (mine !== turn) return;
      const [[entries], fitting] = await runFitting((count) => [["XRANGE", keyOf(id), start, "+", "COUNT", String(count)]], count, db);
      if (mine !== turn) return;
      if (entries instanceof Failure) throw entries;
      if (fitting < count) most = fitting;
      const fresh = entries.map(([entry, list]) => ({ entry, fields: fieldsOf(list) })).filter(({ fields }) => "dlq-stream" in fields);
      // A stream without any at its beginning is no queue of dead letters.
      const isOther = looked === 0 && !fresh.length;
      const matching = fresh.filter(({ entry, fields }) => !text || entry.includes(text) || linesOf(fields).some((line) => line.includes(text)));
      // Of those that are not shown, only what puts them back is kept: messages may be large.
      const kept = ({ entry, fields }, at) => ({ entry, fields: found.length + at < LETTERS_SHOWN ? fields : { "dlq-stream": fields["dlq-stream"] } });
      found = found.concat(matching.map(kept));
      looked += entries.length;
      if (entries.length < fitting || isOther) {
        start = "-";
        show({});
        return;
      }
      start = "(" + entries[entries.length - 1][0];
      count = most;
      if (!isQuiet) show({ busy: true });
    }
    show({});
  } catch (error) {
    if (mine === turn && isQuiet) letters.value = { ...letters.peek(), error };
    else if (mine === turn) show({ error });
  } finally {
    if (mine === reading) reading = null;
  }
}

// Puts dead letters back, each by its id, so that no other takes its place.
function redrive(id, rows) {
  const db = database();
  const all = number(rows.length);
  ask({
    title: t("redrive.title", { n: all }),
    body: html`<p>${t("redrive.body")}</p>
      <ul class="mono">${rows.slice(0, 5).map(({ entry, fields }) => html`<li>${entry} → ${asText(fields["dlq-stream"])} <span class="muted">${summary(fields).slice(0, 80)}</span></li>`)}</ul>
      ${rows.length > 5 && html`<p class="muted">${t("more", { n: number(rows.length - 5) })}</p>`}
      <p class="warn">${t("redrive.groups")}</p>`,
    verb: t("redrive.verb"),
    act: async () => {
      let moved = 0;
      try {
        for (let at = 0; at < rows.length; at += 200) {
          const calls = rows.slice(at, at + 200).map(({ entry, fields }) => ["XDLQ.REDRIVE", keyOf(id), fields["dlq-stream"], "START", entry, "END", entry, "COUNT", "1"]);
          const replies = await run(calls, db);
          const failed = replies.find((reply) => reply instanceof Failure);
          for (const reply of replies) moved += reply instanceof Failure ? 0 : reply[1].redriven;
          if (failed) throw failed;
        }
      } catch (error) {
        throw new Failure(t("redrive.failed", { n: number(moved), all, text: reason(error) }));
      } finally {
        readLetters(id, find(), db, BEGINNING, true);
      }
      notify(moved === rows.length ? t("redrive.done", { n: all }) : t("redrive.some", { n: number(moved), all }));
    },
  });
}

const summary = (fields) => linesOf(fields).filter((line) => !line.startsWith("dlq-")).join("  ");

function Letters({ id }) {
  const { found = [], looked = 0, busy, error, start = "-" } = letters.value.place === place("queues") ? letters.value : {};
  const isCut = !busy && start !== "-";
  const goOn = () => readLetters(id, text, database(), { found, looked, start });
  const again = () => readLetters(id, text, database());
  const text = find();
  if (!found.length && !text && !error) return null;
  const columns = [
    { name: t("col.id"), cell: ({ entry, fields }) => html`<span class="mono nowrap">${entry}</span>${fields["dlq-time"] ? html`<div class="muted nowrap">${clock(fields["dlq-time"])}</div>` : ""}` },
    { name: t("queues.from"), cell: ({ fields }) => html`<${Key} of=${fields["dlq-stream"]} /> <span class="muted">${asText(fields["dlq-group"])}</span>` },
    { name: t("queues.deliveries"), num: true, cell: ({ fields }) => asText(fields["dlq-deliveries"]) },
    { name: t("col.message"), cell: ({ fields }) => html`<span class="key">${summary(fields)}</span>` },
    actions((row) => html`<button onClick=${() => redrive(id, [row])}>${t("redrive.verb")}</button>`),
  ];
  const tools = html`<button class="is-quiet" disabled=${busy} onClick=${again}>${t("again")}</button><button disabled=${!found.length || busy} onClick=${() => redrive(id, found)}>${t("redrive.all", { n: number(found.length) })}</button>`;
  return html`<${Panel} title=${t("queues.dead")} tools=${tools}>
    <div class="body tools"><${Search} value=${text} placeholder=${t("queues.find")} onSearch=${(find) => adjust({ find })} /></div>
    <${Table} columns=${columns} rows=${found.slice(0, LETTERS_SHOWN)} id=${({ entry }) => entry} empty=${busy ? t("loading") : t("queues.none-dead")} label=${t("queues.dead")} />
    ${error && html`<p class="empty bad">${reason(error)}</p>`}
    <p class="empty">${busy ? t("queues.looking", { n: number(looked) }) : t("queues.looked", { n: number(found.length), looked: number(looked) })} ${isCut && html`<button onClick=${goOn}>${t("scan.more")}</button>`} ${found.length > LETTERS_SHOWN ? t("keys.cut", { n: number(LETTERS_SHOWN), all: number(found.length) }) : ""}</p>
  <//>`;
}

function Detail({ id }) {
  const state = stateOf(id);
  const { consumers = [], delayed = [], error } = detail.value.place === place("queues") ? detail.value : {};
  const head = html`<${KeyHead} id=${id} about=${state && !state.error ? t("queues.entries", { n: number(state.length) }) : ""} />`;
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
          ? html`${t("queues.policy.is", { idle: duration(row.policy.idle), n: row.policy["max-deliveries"] || "∞" })}${row.policy.dlq ? html` → <a class="inline" href=${withParams({ key: keyId(row.policy.dlq), find: "" })}><${Key} of=${row.policy.dlq} /></a>` : ""}
              ${row.policy.exhausted > 0 && html` <span class="tag is-bad">${t("queues.exhausted", { n: number(row.policy.exhausted) })}</span>`}`
          : html`<span class="muted">${t("queues.policy.none")}</span>`,
    },
  ];
  const people = [
    { name: t("queues.group"), cell: (row) => html`<${Key} of=${row.group} />` },
    { name: t("queues.consumer"), cell: (row) => html`<${Key} of=${row.name} />` },
    { name: t("queues.pending"), num: true, cell: (row) => number(row.pending) },
    { name: t("queues.idle"), num: true, cell: (row) => html`<span class=${row.pending > 0 && now.value - row.sinceMs > 60000 ? "warn" : ""}>${duration(now.value - row.sinceMs)}</span>` },
  ];
  const later = [
    { name: t("col.id"), cell: (row) => html`<span class="mono nowrap">${row.id}</span>` },
    { name: t("queues.in"), num: true, cell: (row) => (row.dueMs > now.value ? duration(row.dueMs - now.value) : t("queues.due")) },
    { name: t("col.message"), cell: (row) => html`<span class="key">${summary(Array.isArray(row.fields) ? fieldsOf(row.fields) : row.fields)}</span>` },
  ];
  return html`<div>${head}
    <${Letters} key=${place("queues")} id=${id} />
    <${Panel} title=${t("queues.groups")}><${Table} columns=${groups} rows=${state.groups || []} id=${(row) => asText(row.name)} empty=${t("queues.no-groups")} label=${t("queues.groups")} /><//>
    ${error && html`<p class="empty bad">${reason(error)}</p>`}
    ${consumers.length > 0 && html`<${Panel} title=${t("queues.consumers")} tools=${html`<button class="is-quiet" onClick=${() => readDetail(id, database())}>${t("again")}</button>`}><${Table} columns=${people} rows=${consumers} id=${(row) => asText(row.group) + " " + asText(row.name)} empty="" label=${t("queues.consumers")} /><//>`}
    ${delayed.length > 0 && html`<${Panel} title=${t("queues.later")}><${Table} columns=${later} rows=${delayed} id=${(row) => row.id} empty="" label=${t("queues.later")} /><//>`}
  </div>`;
}

export function Screen() {
  const id = chosen();
  const rows = scan.state.value.found.map(({ key }) => ({ key, state: stateOf(keyId(key)) || {} }));
  const total = (name) => (row) => (Array.isArray(row.state.groups) ? number(sum(row.state.groups, name)) : "");
  const columns = [
    { name: t("col.key"), cell: (row) => html`<a href=${withParams({ key: keyId(row.key), find: "" })}><${Key} of=${row.key} /></a><${Fault} of=${row.state} />` },
    { name: t("queues.length"), num: true, cell: (row) => (row.state.length === undefined ? "" : number(row.state.length)) },
    // Beside a chosen stream there is less room.
    !id && { name: t("queues.groups"), num: true, cell: (row) => (Array.isArray(row.state.groups) ? number(row.state.groups.length) : "") },
    { name: t("queues.pending"), num: true, cell: total("pending") },
    { name: t("queues.lag"), num: true, cell: total("lag") },
  ].filter(Boolean);
  return html`
    <header><h1>${t("nav.queues")}</h1><span class="muted">${t("queues.about")}</span></header>
    <${Finder} placeholder=${t("queues.search")} opens />
    <div class=${"beside" + (id ? "" : " is-single")}>
      <${Found} scan=${scan} none=${t("queues.none")} columns=${columns} rows=${rows} label=${t("nav.queues")} />
      ${id && html`<${Detail} id=${id} />`}
    </div>
  `;
}
