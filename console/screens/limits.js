// Limits: which of them refuse whom, and what is left of one.

import { effect, signal } from "../vendor/signals-core.module.js";
import { asText, call, keyId, keyOf } from "../api.js";
import { clock, duration, number } from "../format.js";
import { html } from "../html.js";
import { t } from "../lang.js";
import { now, topics } from "../live.js";
import { actions, Database, Facts, Key, Panel, reason, Table } from "../parts.js";
import { adjust, database, isShown, route, withParams } from "../route.js";
import { reasonOf } from "./locks.js";

export const query = () => "events";

// Kinds of rules and their parameters.
const KINDS = {
  GCRA: ["rate", "period-ms", "burst"],
  FIXED: ["max", "window-ms"],
  SLIDING: ["max", "window-ms"],
  EXACT: ["max", "window-ms"],
  CALENDAR: ["max", "unit", "offset-minutes"],
};

// Whether an event is a refusal by a limit.
export const isOfLimit = (event) => event.event === "refused" && /^(limit\.|cl\.throttle|gcra)/.test(event.command || "");

// The parameters of the address that ask what is left of the limit of an event.
export function limitOf({ key, db, reason }) {
  const kind = (reason || "").toUpperCase();
  return { of: keyId(key), db: db || "", kind: kind in KINDS ? kind : "" };
}

// What the address asks for: a key, a kind of rule, and a database. An answer goes with them.
const kindOf = (params) => (params.get("kind") in KINDS ? params.get("kind") : "GCRA");
const asked = () => JSON.stringify([route.value.params.get("of"), kindOf(route.value.params), database()]);

const answer = signal({});

async function look(event) {
  event.preventDefault();
  const fields = Object.fromEntries(new FormData(event.target));
  const of = route.value.params.get("of");
  // The field can't hold bytes that are no text.
  const key = of && fields.key === asText(keyOf(of)) ? keyOf(of) : fields.key;
  const [kind, db] = [kindOf(route.value.params), database()];
  const own = { of: asked(), key, kind, db };
  answer.value = { ...own, busy: true };
  let said;
  try {
    const [granted, { rules }] = await call(["LIMIT.TAKE", "DRYRUN", "RULES", "1", key, kind, ...KINDS[kind].map((name) => fields[name])], db);
    said = { granted, rule: rules[0] };
  } catch (error) {
    said = { error };
  }
  if (answer.peek().of === own.of) answer.value = { ...own, ...said };
}

// All refusals by limits that the server remembers, by their ids.
const NOTHING = { events: new Map(), next: 0, error: null };
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
      const { events, next } = remembered.peek();
      const [, said] = await call(["EVENTS", String(next), "COUNT", String(EVENTS_AT_A_TIME)]);
      count = said.events.length;
      const all = new Map(events);
      for (const event of said.events.filter(isOfLimit)) all.set(event.id, event);
      while (all.size > EVENTS_MAX) all.delete(all.keys().next().value);
      remembered.value = { events: all, next: said.next, error: null };
    }
  } catch (error) {
    remembered.value = { ...remembered.peek(), error };
  }
  isReading = false;
}

effect(() => {
  // The stream says that there are new events, and has the last few of them only.
  if (!isShown("limits")) remembered.value = NOTHING;
  else if (topics.value.events) read();
});

// Remembered refusals by key, those that refuse most first.
function byKey(events) {
  const found = new Map();
  for (const event of events) {
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
  const kind = kindOf(route.value.params);
  const of = route.value.params.get("of");
  const { key, granted, rule, error, busy, db } = answer.value.of === asked() ? answer.value : {};
  return html`<${Panel} title=${t("limits.look")}>
    <form class="body" onSubmit=${look}>
      <div class="tools">
        <label class="grow"><span>${t("col.key")}</span><input class="key" name="key" required key=${of} defaultValue=${of ? asText(keyOf(of)) : ""} placeholder="caller:7" autocomplete="off" spellcheck=${false} /></label>
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
      [t("col.key"), html`<${Key} of=${key} />`],
      [t("limits.kind"), kind],
      [t("database"), db],
      [t("limits.now"), granted ? html`<span class="good">${t("limits.grants")}</span>` : html`<span class="bad">${t("limits.refuses")}</span>`],
      [t("limits.remaining"), `${number(rule.remaining + (granted ? 1 : 0))} / ${number(rule.limit)}`],
      [t("limits.retry"), rule["retry-after-ms"] < 0 ? t("ttl.none") : duration(rule["retry-after-ms"])],
      [t("limits.reset"), duration(rule["reset-after-ms"])],
    ]} /></div>`}
  <//>`;
}

export function Screen() {
  const { events, error } = remembered.value;
  const first = events.values().next().value;
  const rows = byKey([...events.values()]);
  const columns = [
    { name: t("col.key"), cell: (row) => html`<${Key} of=${row.key} />` },
    { name: t("limits.kind"), cell: (row) => reasonOf(row.reason) },
    { name: t("limits.refusals"), num: true, cell: (row) => number(row.count) },
    { name: t("limits.callers"), num: true, cell: (row) => number(row.callers.size) },
    { name: t("limits.limit"), num: true, cell: (row) => number(row.limit) },
    { name: t("col.last-time"), cell: (row) => html`<span class="nowrap">${clock(row.at)}</span>` },
    actions((row) => html`<a class="button" href=${withParams(limitOf(row))}>${t("limits.look")}</a>`),
  ];
  return html`
    <header><h1>${t("nav.limits")}</h1><span class="muted">${t("limits.about")}</span></header>
    <${Panel} title=${t("limits.refusing")}>
      ${error
        ? html`<p class="empty bad">${reason(error)}</p>`
        : html`<${Table} columns=${columns} rows=${rows} id=${(row) => row.id} empty=${topics.value.events ? t("limits.none") : t("loading")} label=${t("limits.refusing")} />`}
      ${first && html`<p class="empty">${t("limits.since", { time: duration(now.value - first["at-ms"]) })}</p>`}
    <//>
    <${Look} />
  `;
}
