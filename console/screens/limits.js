// Limits: which of them refuse whom, and what is left of one.

import { effect, signal } from "../vendor/signals-core.module.js";
import { asText, call, keyId } from "../api.js";
import { clock, duration, number } from "../format.js";
import { html } from "../html.js";
import { t } from "../lang.js";
import { now, topics } from "../live.js";
import { Facts, Key, Panel, reason, Table } from "../parts.js";
import { adjust, href, route, withParams } from "../route.js";
import { Database, reasonOf } from "./locks.js";

export const query = () => "events";

// Kinds of rules and their parameters.
const KINDS = {
  GCRA: ["rate", "period-ms", "burst"],
  FIXED: ["max", "window-ms"],
  SLIDING: ["max", "window-ms"],
  EXACT: ["max", "window-ms"],
  CALENDAR: ["max", "unit", "offset-minutes"],
};

const answer = signal({});

const isOfLimit = (event) => event.event === "refused" && /^(limit\.|cl\.throttle|gcra)/.test(event.command || "");

async function look(event) {
  event.preventDefault();
  const fields = Object.fromEntries(new FormData(event.target));
  const parameters = KINDS[fields.kind].map((name) => fields[name]);
  answer.value = { busy: true };
  try {
    const [granted, said] = await call(["LIMIT.TAKE", "DRYRUN", "RULES", "1", fields.key, fields.kind, ...parameters], Number(route.value.params.get("db") || 0));
    answer.value = { granted, rule: said.rules[0] };
  } catch (error) {
    answer.value = { error };
  }
}

// All refusals by limits that the server remembers, by their ids, and since when.
const NOTHING = { events: new Map(), next: 0, sinceMs: null, error: null };
const remembered = signal(NOTHING);

// Events of a request, and of all requests: the server remembers no more.
const EVENTS_AT_A_TIME = 500;
const EVENTS_MAX = 4000;
let isReading = false;

// Reads on from where it was.
async function read() {
  if (isReading) return;
  isReading = true;
  try {
    for (let count = EVENTS_AT_A_TIME; count === EVENTS_AT_A_TIME; ) {
      const { events, next, sinceMs } = remembered.peek();
      const [, said] = await call(["EVENTS", String(next), "COUNT", String(EVENTS_AT_A_TIME)]);
      count = said.events.length;
      const all = new Map(events);
      for (const event of said.events) all.set(event.id, event);
      while (all.size > EVENTS_MAX) all.delete(all.keys().next().value);
      const first = sinceMs ?? (said.events[0] ? said.events[0]["at-ms"] : null);
      remembered.value = { events: all, next: said.next, sinceMs: first, error: null };
    }
  } catch (error) {
    remembered.value = { ...remembered.peek(), error };
  }
  isReading = false;
}

effect(() => {
  // The stream says that there are new events, and has the last few of them only.
  if (route.value.screen !== "limits") remembered.value = NOTHING;
  else if (topics.value.events) read();
});

// Remembered refusals by key, those that refuse most first.
function byKey(events) {
  const found = new Map();
  for (const event of events.filter(isOfLimit)) {
    const id = (event.db || 0) + " " + keyId(event.key);
    const row = found.get(id) || { id, db: event.db || 0, key: event.key, count: 0, callers: new Set(), reason: event.reason, at: 0 };
    row.count += 1;
    row.callers.add(asText(event["client-addr"]).replace(/:\d+$/, ""));
    row.at = Math.max(row.at, event["at-ms"]);
    row.limit = event.limit;
    found.set(id, row);
  }
  return [...found.values()].sort((a, b) => b.count - a.count || b.at - a.at);
}

function Look() {
  const kind = route.value.params.get("kind") || "GCRA";
  const { granted, rule, error, busy } = answer.value;
  return html`<${Panel} title=${t("limits.look")}>
    <form class="body" onSubmit=${look}>
      <div class="tools">
        <label class="grow"><span>${t("col.key")}</span><input class="key" name="key" required key=${route.value.params.get("of")} defaultValue=${route.value.params.get("of") || ""} placeholder="caller:7" autocomplete="off" spellcheck=${false} /></label>
        <label><span>${t("limits.kind")}</span><select name="kind" onChange=${(event) => adjust({ kind: event.target.value })}>${Object.keys(KINDS).map((name) => html`<option selected=${name === kind}>${name}</option>`)}</select></label>
        ${KINDS[kind].map((name) =>
          name === "unit"
            ? html`<label><span>${name}</span><select name="unit"><option>hour</option><option>day</option><option>week</option><option>month</option></select></label>`
            : html`<label><span>${name}</span><input name=${name} type="number" required style=${{ width: "11ch" }} defaultValue=${name === "offset-minutes" ? "0" : undefined} /></label>`)}
        <${Database} />
        <button class="is-main" disabled=${busy}>${t("limits.verb")}</button>
      </div>
      <p class="muted">${t("limits.dryrun")}</p>
    </form>
    ${error && html`<p class="empty bad">${reason(error)}</p>`}
    ${rule && html`<div class="body"><${Facts} of=${[
      [t("limits.now"), granted ? html`<span class="good">${t("limits.grants")}</span>` : html`<span class="bad">${t("limits.refuses")}</span>`],
      [t("limits.remaining"), `${number(rule.remaining + (granted ? 1 : 0))} / ${number(rule.limit)}`],
      [t("limits.retry"), rule["retry-after-ms"] < 0 ? t("never") : duration(rule["retry-after-ms"])],
      [t("limits.reset"), duration(rule["reset-after-ms"])],
    ]} /></div>`}
  <//>`;
}

export function Screen() {
  const { events, sinceMs, error } = remembered.value;
  const rows = byKey([...events.values()]);
  const columns = [
    { name: t("col.key"), cell: (row) => html`<a href=${href("events", { event: "refused", q: asText(row.key) })}><${Key} of=${row.key} /></a>` },
    { name: t("limits.kind"), cell: (row) => reasonOf(row.reason) },
    { name: t("limits.refusals"), num: true, cell: (row) => number(row.count) },
    { name: t("limits.callers"), num: true, cell: (row) => number(row.callers.size) },
    { name: t("limits.limit"), num: true, cell: (row) => number(row.limit) },
    { name: t("col.last-time"), cell: (row) => html`<span class="nowrap">${clock(row.at)}</span>` },
    { name: html`<span class="hidden-text">${t("col.action")}</span>`, cell: (row) => html`<a class="button" href=${withParams({ of: asText(row.key), db: row.db || "", kind: row.reason.toUpperCase() in KINDS ? row.reason.toUpperCase() : "" })}>${t("limits.look")}</a>` },
  ];
  return html`
    <header><h1>${t("nav.limits")}</h1><span class="muted">${t("limits.about")}</span></header>
    <${Panel} title=${t("limits.refusing")}>
      ${error
        ? html`<p class="empty bad">${reason(error)}</p>`
        : html`<${Table} columns=${columns} rows=${rows} id=${(row) => row.id} empty=${topics.value.events ? t("limits.none") : t("loading")} />`}
      ${sinceMs && rows.length > 0 && html`<p class="empty">${t("limits.since", { time: duration(now.value - sinceMs) })}</p>`}
    <//>
    <${Look} />
  `;
}
