// Locks and gates: who holds, who waits, and why somebody was refused.

import { effect, signal } from "../vendor/signals-core.module.js";
import { asText, call, Failure, keyId, keyOf, runFitting } from "../api.js";
import { clock, countdown, duration, number } from "../format.js";
import { html } from "../html.js";
import { knows, t } from "../lang.js";
import { now, queryOf, topics } from "../live.js";
import { actions, ask, Fault, Finder, Found, Key, KeyHead, Lease, notify, Panel, reason, Search, Table } from "../parts.js";
import { chosen, database, href, place, withParams } from "../route.js";
import { Scan } from "../scan.js";

const scan = new Scan("locks", ["lock", "gate"], 50);

export const query = () => queryOf("who", database(), chosen(), scan.state.value.found);

function stateOf(id) {
  return topics.value.who && topics.value.who[id];
}

const NO_REFUSALS = { place: null, subject: "", list: null, error: null };
const refusals = signal(NO_REFUSALS);

// Asks why, when a key is chosen, and again when its refusals are looked for.
async function askWhy(id, db, subject = "") {
  const own = { ...refusals.peek(), place: db + " " + id, subject };
  refusals.value = own;
  // Another search may have begun in the meantime.
  const show = (said) => refusals.peek() === own && (refusals.value = { ...own, ...said });
  try {
    const words = ["WHY", keyOf(id), ...(subject ? [subject] : []), "COUNT", "20"];
    const [, said] = await call(words, db);
    show({ list: said.refusals, error: null });
  } catch (error) {
    show({ list: [], error });
  }
}

effect(() => {
  const wanted = place("locks");
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

// The commands that end a grant know its holder by name. This throws if the name has another grant than the reader was
// shown: it may have come back while a note was typed.
export async function stillHeld(id, db, holder, token) {
  const [[said]] = await runFitting((count) => [["WHO", keyOf(id), "COUNT", String(count)]], 10000, db);
  if (said instanceof Failure) throw said;
  const found = said[1].holders.find((row) => asText(row.holder) === asText(holder));
  if (found && found.token !== token) throw new Failure(t("held.changed", { token: number(found.token) }));
}

// Breaks the grant of one holder, or, of `null`, those of all.
function breakLock(id, row, state) {
  const db = database();
  const isOnly = state.holding === 1;
  ask({
    title: t("break.title"),
    body: html`<p>${row ? t(isOnly ? "break.body" : "break.share") : t("break.all")}</p><p><${Key} of=${keyOf(id)} />${row && html` · <${Key} of=${row.holder} />`}</p>`,
    fields: [{ name: "note", label: t("break.note"), most: 1024, autofocus: true }],
    verb: t("break.verb"),
    isBad: true,
    act: async ({ note }) => {
      if (row) await stillHeld(id, db, row.holder, row.token);
      const [ended] = await call(["LOCK.BREAK", keyOf(id), ...(row ? [row.holder] : []), ...(note ? ["NOTE", note] : [])], db);
      notify(ended ? t("break.done") : row ? t("break.gone") : t("break.free"));
    },
  });
}

function releasePlace(id, row) {
  const db = database();
  ask({
    title: t("release.title"),
    body: html`<p>${t("release.body")}</p><p><${Key} of=${keyOf(id)} /> · <${Key} of=${row.holder} /></p>`,
    verb: t("release.verb"),
    isBad: true,
    act: async () => {
      await stillHeld(id, db, row.holder, row.token);
      const [ended] = await call(["GATE.RELEASE", keyOf(id), row.holder], db);
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
    // A string or a hash that programs use as a lock is theirs to end.
    state.type === "gate" && actions((row) => html`<button class="is-bad" onClick=${() => releasePlace(id, row)}>${t("release.verb")}</button>`),
    state.type === "lock" && actions((row) => html`<button class="is-bad" onClick=${() => breakLock(id, row, state)}>${t("break.verb")}</button>`),
  ].filter(Boolean);
  return html`<${Panel} title=${t("locks.holders", { n: number(state.holding) })}>
    <${Table} columns=${columns} rows=${state.holders || []} id=${(row) => asText(row.holder)} empty=${t("locks.free")} label=${t("locks.holders", { n: number(state.holding) })} />
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
    <${Table} columns=${columns} rows=${state.waiters || []} id=${(row) => row["client-id"] + ":" + row.ticket} empty=${t("locks.nobody")} label=${t("locks.waiters", { n: number(state.waiting) })} />
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
    ${said.error ? html`<p class="empty bad">${reason(said.error)}</p>` : html`<${Table} columns=${columns} rows=${said.list || []} id=${(row) => row.id} empty=${said.list ? t("locks.why.none") : t("loading")} label=${t("locks.why")} />`}
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
    <${Table} columns=${columns} rows=${state.history || []} id=${(row) => row.id} empty=${t("locks.history.none")} label=${t("locks.history")} />
  <//>`;
}

function Detail({ id }) {
  const state = stateOf(id);
  const head = html`<${KeyHead} id=${id} about=${state && state.type ? t("type." + state.type) : ""}>
    ${state && state.type === "lock" && state.holding > 0 && html`<button class="is-bad" onClick=${() => breakLock(id, state.holding === 1 ? state.holders[0] : null, state)}>${t("break.whole")}</button>`}
  <//>`;
  if (!state) return html`<div>${head}<p class="empty">${t("loading")}</p></div>`;
  if (state.error) return html`<div>${head}<p class="empty bad">${reason(new Failure(state.error))}</p></div>`;
  return html`<div>
    ${head}
    ${state.type === "stock" && html`<p class="empty"><a href=${href("stocks", { key: id, db: database() || "" })}>${t("locks.stock")}</a></p>`}
    <${Holders} id=${id} state=${state} />
    <${Waiters} state=${state} />
    <${Why} key=${place("locks")} id=${id} />
    <${History} state=${state} />
  </div>`;
}

function List() {
  const rows = scan.state.value.found.map(({ key, type }) => ({ key, type, state: stateOf(keyId(key)) }));
  const waiting = (row) => (row.state && row.state.waiting) || 0;
  // Those that somebody waits for come first, in the order in which they were found.
  rows.sort((a, b) => waiting(b) - waiting(a));
  const first = (row) => row.state && row.state.holders && row.state.holders[0];
  const lease = (row, { token, holder, "ends-ms": endsMs, "since-ms": sinceMs }) =>
    html`<${Lease} endsMs=${endsMs} sinceMs=${sinceMs} id=${keyId(row.key) + " " + token + " " + asText(holder)} />`;
  const columns = [
    { name: t("col.key"), cell: (row) => html`<a href=${withParams({ key: keyId(row.key) })}><${Key} of=${row.key} /></a> <span class="tag">${t("type." + row.type)}</span><${Fault} of=${row.state} />` },
    { name: t("col.holding"), num: true, cell: (row) => (row.state ? number(row.state.holding) : "") },
    { name: t("col.waiting"), num: true, cell: (row) => (row.state ? html`<span class=${waiting(row) ? "warn" : "muted"}>${number(waiting(row))}</span>` : "") },
    { name: t("col.holder"), cell: (row) => first(row) && html`<${Key} of=${first(row).holder} />` },
    { name: t("col.lease"), cell: (row) => first(row) && lease(row, first(row)) },
  ];
  return html`<${Found} scan=${scan} none=${t("locks.none")} columns=${chosen() ? columns.slice(0, 3) : columns} rows=${rows} label=${t("nav.locks")} />`;
}

export function Screen() {
  const id = chosen();
  return html`
    <header><h1>${t("nav.locks")}</h1><span class="muted">${t("locks.about")}</span></header>
    <${Finder} placeholder=${t("locks.search")} opens />
    <div class=${"beside" + (id ? "" : " is-single")}>
      <${List} />
      ${id && html`<${Detail} id=${id} />`}
    </div>
  `;
}
