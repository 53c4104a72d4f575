// Locks and gates: who holds, who waits, and why somebody was refused.

import { effect, signal } from "../vendor/signals-core.module.js";
import { asText, call, Failure, keyId, keyOf } from "../api.js";
import { clock, countdown, duration, number } from "../format.js";
import { html } from "../html.js";
import { knows, t } from "../lang.js";
import { now, queryOf, topics } from "../live.js";
import { ask, Fault, Key, Lease, notify, Panel, reason, Search, Table } from "../parts.js";
import { adjust, route, withParams } from "../route.js";
import { Scan } from "../scan.js";

// Rows of the list.
const PAGE = 50;

const scan = new Scan(["lock", "gate"]);
let searched = null;

// Looks when the screen is entered, and when the search has changed.
effect(() => {
  const { screen, params } = route.value;
  if (screen !== "locks") {
    searched = null;
    scan.stop();
    return;
  }
  const wanted = JSON.stringify([params.get("q") || "", Number(params.get("db") || 0)]);
  if (wanted === searched) return;
  searched = wanted;
  const [text, db] = JSON.parse(wanted);
  scan.begin(text, db, PAGE);
});

const chosen = () => route.value.params.get("key");
const database = () => Number(route.value.params.get("db") || 0);

// Names the chosen key among those of all databases.
const place = () => (chosen() ? database() + " " + chosen() : null);

export const query = () => queryOf("who", database(), chosen(), scan.state.value.found);

function stateOf(id) {
  return topics.value.who && topics.value.who[id];
}

const NO_REFUSALS = { place: null, subject: "", list: [], error: null };
const refusals = signal(NO_REFUSALS);

// Asks why, when a key is chosen, and again when its refusals are looked for.
async function askWhy(id, db, subject = "") {
  const asked = db + " " + id;
  try {
    const words = ["WHY", keyOf(id), ...(subject ? [subject] : []), "COUNT", "20"];
    const [, said] = await call(words, db);
    if (place() === asked) refusals.value = { place: asked, subject, list: said.refusals, known: said.known, error: null };
  } catch (error) {
    if (place() === asked) refusals.value = { place: asked, subject, list: [], error };
  }
}

effect(() => {
  const wanted = route.value.screen === "locks" ? place() : null;
  if (refusals.peek().place === wanted) return;
  refusals.value = { ...NO_REFUSALS, place: wanted };
  if (wanted) askWhy(chosen(), database());
});

export function reasonOf(word) {
  return knows("reason." + word) ? t("reason." + word) : word;
}

export function eventOf(word) {
  return knows("event." + word) ? t("event." + word) : word;
}

function clientOf(row) {
  if (!row["client-id"]) return html`<span class="muted">–</span>`;
  return html`<span class="mono">${asText(row["client-addr"])}</span>${row["client-name"] ? html` <span class="muted">${asText(row["client-name"])}</span>` : ""}`;
}

function breakLock(id, holder) {
  const db = database();
  ask({
    title: t("break.title"),
    body: html`<p>${t("break.body")}</p><p><${Key} of=${keyOf(id)} />${holder && html` · <${Key} of=${holder} />`}</p>`,
    fields: [{ name: "note", label: t("break.note"), most: 1024, autofocus: true }],
    verb: t("break.verb"),
    isBad: true,
    act: async ({ note }) => {
      const [ended] = await call(["LOCK.BREAK", keyOf(id), ...(holder ? [holder] : []), ...(note ? ["NOTE", note] : [])], db);
      notify(ended ? t("break.done") : t("break.free"));
    },
  });
}

function releasePlace(id, holder) {
  const db = database();
  ask({
    title: t("release.title"),
    body: html`<p>${t("release.body")}</p><p><${Key} of=${keyOf(id)} /> · <${Key} of=${holder} /></p>`,
    verb: t("release.verb"),
    isBad: true,
    act: async () => {
      const [ended] = await call(["GATE.RELEASE", keyOf(id), holder], db);
      notify(ended ? t("release.done") : t("release.free"));
    },
  });
}

function Holders({ id, state }) {
  const columns = [
    { name: t("col.holder"), cell: (row) => html`<${Key} of=${row.holder} />${row.note ? html`<div class="muted">${asText(row.note)}</div>` : ""}` },
    { name: t("col.lease"), cell: (row) => html`<${Lease} endsMs=${row["ends-ms"]} sinceMs=${row["since-ms"]} id=${id + " " + row.token + " " + asText(row.holder)} />` },
    { name: t("col.since"), num: true, cell: (row) => (row["since-ms"] > 0 ? html`<span title=${clock(row["since-ms"])}>${duration(now.value - row["since-ms"])}</span>` : "–") },
    { name: t("col.token"), num: true, cell: (row) => (row.token ? number(row.token) : "–") },
    state.type === "lock"
      ? { name: t("col.depth"), num: true, cell: (row) => (row.shared ? t("shared") : number(row.depth)) }
      : { name: t("col.units"), num: true, cell: (row) => number(row.units) },
    { name: t("col.client"), cell: clientOf },
    {
      name: html`<span class="hidden-text">${t("col.action")}</span>`,
      cell: (row) =>
        state.type === "gate"
          ? html`<button class="is-bad" onClick=${() => releasePlace(id, row.holder)}>${t("release.verb")}</button>`
          : html`<button class="is-bad" onClick=${() => breakLock(id, row.holder)}>${t("break.verb")}</button>`,
    },
  ];
  return html`<${Panel} title=${t("locks.holders", { n: number(state.holding) })}>
    <${Table} columns=${columns} rows=${state.holders || []} id=${(row) => asText(row.holder)} empty=${t("locks.free")} label=${t("locks.holders", { n: state.holding })} />
    ${state.holding > (state.holders || []).length && html`<p class="empty">${t("more", { n: number(state.holding - state.holders.length) })}</p>`}
  <//>`;
}

function Waiters({ state }) {
  const columns = [
    { name: "#", num: true, cell: (_, at) => at + 1 },
    { name: t("col.who"), cell: (row) => html`<${Key} of=${row.holder} />` },
    { name: t("col.waits"), num: true, cell: (row) => duration(now.value - row["since-ms"]) },
    { name: t("col.left"), num: true, cell: (row) => (row["until-ms"] < 0 ? t("no-limit") : countdown(row["until-ms"] - now.value)) },
    { name: t("col.client"), cell: clientOf },
  ];
  return html`<${Panel} title=${t("locks.waiters", { n: number(state.waiting) })}>
    <${Table} columns=${columns} rows=${state.waiters || []} id=${(row, at) => row["client-id"] + ":" + row.ticket} empty=${t("locks.nobody")} />
    ${state.waiting > (state.waiters || []).length && html`<p class="empty">${t("more", { n: number(state.waiting - state.waiters.length) })}</p>`}
  <//>`;
}

function Why({ id }) {
  const said = refusals.value;
  const columns = [
    { name: t("col.when"), cell: (row) => html`<span class="nowrap">${clock(row["at-ms"])}</span>` },
    { name: t("col.who"), cell: (row) => html`<${Key} of=${row.holder} />` },
    { name: t("col.reason"), cell: (row) => html`${reasonOf(row.reason)} <span class="muted">${t("in-use", { n: number(row["in-use"]), limit: number(row.limit) })}</span>` },
    { name: t("col.client"), cell: clientOf },
  ];
  const search = (text) => askWhy(id, database(), text);
  return html`<${Panel} title=${t("locks.why")} tools=${html`<button class="is-quiet" onClick=${() => askWhy(id, database(), said.subject)}>${t("again")}</button>`}>
    <div class="body"><${Search} value=${said.subject || ""} placeholder=${t("locks.why.subject")} onSearch=${search} /></div>
    ${said.error ? html`<p class="empty bad">${reason(said.error)}</p>` : html`<${Table} columns=${columns} rows=${said.list} id=${(row) => row.id} empty=${t("locks.why.none")} />`}
  <//>`;
}

function History({ state }) {
  const columns = [
    { name: t("col.when"), cell: (row) => html`<span class="nowrap">${clock(row["at-ms"])}</span>` },
    { name: t("col.event"), cell: (row) => html`<span class=${row.event === "broken" || row.event === "lapsed" ? "warn" : ""}>${eventOf(row.event)}</span>` },
    { name: t("col.holder"), cell: (row) => html`<${Key} of=${row.holder} />${row.note ? html`<div class="muted">${asText(row.note)}</div>` : ""}` },
    { name: t("col.client"), cell: clientOf },
  ];
  return html`<${Panel} title=${t("locks.history")}>
    <${Table} columns=${columns} rows=${state.history || []} id=${(row) => row.id} empty=${t("locks.history.none")} />
  <//>`;
}

function Detail({ id }) {
  const state = stateOf(id);
  const head = html`<header class="panel"><div class="body tools">
    <div class="grow"><h2><${Key} of=${keyOf(id)} /></h2><span class="muted">${state && state.type ? t("type." + state.type) : ""}</span></div>
    ${state && state.type === "lock" && state.holding > 0 && html`<button class="is-bad" onClick=${() => breakLock(id)}>${t("break.whole")}</button>`}
    <a class="button" href=${withParams({ key: "" })}>${t("close")}</a>
  </div></header>`;
  if (!state) return html`<div>${head}<p class="empty">${t("loading")}</p></div>`;
  if (state.error) return html`<div>${head}<p class="empty bad">${reason(new Failure(state.error))}</p></div>`;
  return html`<div>
    ${head}
    <${Holders} id=${id} state=${state} />
    <${Waiters} state=${state} />
    <${Why} id=${id} />
    <${History} state=${state} />
  </div>`;
}

function List() {
  const { found, looked, done, busy, error } = scan.state.value;
  const text = route.value.params.get("q") || "";
  const rows = found.map(({ key, type }) => ({ key, type, id: keyId(key), state: stateOf(keyId(key)) }));
  const waiting = (row) => (row.state && row.state.waiting) || 0;
  // Those that somebody waits for come first, in the order in which they were found.
  rows.sort((a, b) => waiting(b) - waiting(a));
  const first = (row) => row.state && row.state.holders && row.state.holders[0];
  const columns = [
    { name: t("col.key"), cell: (row) => html`<a href=${withParams({ key: row.id })}><${Key} of=${row.key} /></a> <span class="tag">${t("type." + row.type)}</span><${Fault} of=${row.state} />` },
    { name: t("col.holding"), num: true, cell: (row) => (row.state ? number(row.state.holding) : "") },
    { name: t("col.waiting"), num: true, cell: (row) => (row.state ? html`<span class=${waiting(row) ? "warn" : "muted"}>${number(waiting(row))}</span>` : "") },
    { name: t("col.holder"), cell: (row) => first(row) && html`<${Key} of=${first(row).holder} />` },
    { name: t("col.lease"), cell: (row) => first(row) && html`<${Lease} endsMs=${first(row)["ends-ms"]} sinceMs=${first(row)["since-ms"]} id=${row.id + " " + first(row).token + " " + asText(first(row).holder)} />` },
  ];
  const shown = chosen() ? columns.slice(0, 3) : columns;
  return html`<${Panel}>
    <${Table} columns=${shown} rows=${rows} id=${(row) => row.id} selected=${chosen() || undefined} address=${(row) => withParams({ key: row.id })}
      empty=${busy ? t("scan.busy", { n: number(looked) }) : text ? t("locks.none-found", { text }) : t("locks.none")} label=${t("nav.locks")} />
    <div class="body tools">
      <span class="muted">${error ? html`<span class="bad">${reason(error)}</span>` : busy ? t("scan.busy", { n: number(looked) }) : done ? t("scan.all", { n: number(found.length) }) : t("scan.some", { n: number(found.length) })}</span>
      ${busy && html`<button onClick=${() => scan.stop()}>${t("scan.stop")}</button>`}
      ${!busy && !done && html`<button onClick=${() => scan.more(PAGE)}>${t("scan.more")}</button>`}
    </div>
  <//>`;
}

export function Screen() {
  const { params } = route.value;
  const id = chosen();
  // A whole name opens its key: who holds a given lock is one search away.
  const search = (text, isWhole) => {
    adjust({ q: text, key: isWhole && text && !/[*?[]/.test(text) ? "t:" + text : params.get("key") && !text ? "" : params.get("key") });
  };
  return html`
    <header><h1>${t("nav.locks")}</h1><span class="muted">${t("locks.about")}</span></header>
    <div class="tools">
      <${Search} value=${params.get("q") || ""} placeholder=${t("locks.search")} onSearch=${search} />
      <${Database} />
    </div>
    <div class=${"beside" + (id ? "" : " is-single")}>
      <${List} />
      ${id && html`<${Detail} id=${id} />`}
    </div>
  `;
}

// The database whose keys a screen shows.
export function Database() {
  const choose = (event) => (location.hash = withParams({ db: event.target.value === "0" ? "" : event.target.value, key: "" }));
  const { params } = route.value;
  return html`<label class="nowrap" style=${{ gridAutoFlow: "column", alignItems: "center", gap: "6px" }}><span>${t("database")}</span>
    <input type="number" min="0" max="9999" style=${{ width: "8ch" }} key=${params.get("db")} defaultValue=${params.get("db") || "0"} onChange=${choose} /></label>`;
}

