// Hot keys: those that take the most time and traffic. The server measures only while somebody has it do so.

import { effect, signal } from "../vendor/signals-core.module.js";
import { call, keyId } from "../api.js";
import { bytes, clock, duration, micros } from "../format.js";
import { html } from "../html.js";
import { t } from "../lang.js";
import { whileHidden } from "../live.js";
import { Key, notify, Panel, reason, Share, Table } from "../parts.js";
import { isShown } from "../route.js";
import { wait } from "../scan.js";

// Keys of each kind that the server is asked for.
const SHOWN = 20;

// A measurement that is forgotten ends by itself.
const LASTS_S = 60;

const EVERY_MS = 2000;

// What HOTKEYS GET says, null for nothing; undefined until it has said so.
const said = signal({ found: undefined, error: null });
const isBusy = signal(false);
let turn = 0;
let entered = false;

effect(() => {
  const shown = isShown("clients");
  if (shown && !entered) follow();
  if (!shown) turn += 1;
  entered = shown;
});

const isRunning = (found) => Boolean(found && found["tracking-active"]);

// Reads what was measured, and again as long as more is.
async function follow() {
  const own = (turn += 1);
  do {
    await whileHidden();
    let now;
    try {
      const reply = await call(["HOTKEYS", "GET"]);
      now = { found: reply && reply[0], error: null };
    } catch (error) {
      now = { found: null, error };
    }
    if (own !== turn) return;
    said.value = now;
    if (!isRunning(now.found)) return;
    await wait(EVERY_MS);
  } while (own === turn);
}

async function tell(...words) {
  isBusy.value = true;
  try {
    await call(["HOTKEYS", ...words]);
  } catch (error) {
    notify(reason(error), true);
  }
  isBusy.value = false;
  if (entered) follow();
}

// The keys of both lists, each with its share of all time and traffic; those of the greatest share first.
function rowsOf(found) {
  const rows = new Map();
  for (const [list, amount, share, whole] of [
    ["by-cpu-time-us", "time", "timeShare", found["all-commands-all-slots-us"]],
    ["by-net-bytes", "traffic", "trafficShare", found["net-bytes-all-commands-all-slots"]],
  ]) {
    const keys = found[list] || [];
    for (let at = 0; at + 1 < keys.length; at += 2) {
      const id = keyId(keys[at]) || JSON.stringify(keys[at]);
      rows.set(id, { ...rows.get(id), id, key: keys[at], [amount]: keys[at + 1], [share]: whole > 0 ? keys[at + 1] / whole : 0 });
    }
  }
  const most = (row) => Math.max(row.timeShare || 0, row.trafficShare || 0);
  return [...rows.values()].sort((a, b) => most(b) - most(a));
}

export function HotKeys() {
  const { found, error } = said.value;
  const columns = [
    { name: t("col.key"), cell: (row) => html`<${Key} of=${row.key} />` },
    { name: t("hot.time"), num: true, cell: (row) => micros(row.time) },
    { name: t("hot.time-share"), cell: (row) => html`<${Share} of=${row.timeShare} />` },
    { name: t("hot.traffic"), num: true, cell: (row) => bytes(row.traffic) },
    { name: t("hot.traffic-share"), cell: (row) => html`<${Share} of=${row.trafficShare} />` },
  ];
  const tools = isRunning(found)
    ? html`<button disabled=${isBusy.value} onClick=${() => tell("STOP")}>${t("scan.stop")}</button>`
    : html`${found && html`<button class="is-quiet" disabled=${isBusy.value} onClick=${() => tell("RESET")}>${t("hot.reset")}</button>`}
        <button disabled=${isBusy.value} onClick=${() => tell("START", "METRICS", "2", "CPU", "NET", "COUNT", String(SHOWN), "DURATION", String(LASTS_S))}>${t("hot.start")}</button>`;
  const far = found && {
    time: duration(found["collection-duration-ms"]),
    when: clock(found["collection-start-time-unix-ms"]),
  };
  return html`<${Panel} title=${t("hot.title")} tools=${tools}>
    <div class="body muted">${t("hot.about")} ${far && html`<span role="status">${t(isRunning(found) ? "hot.running" : "hot.ended", far)}</span>`}</div>
    ${error && html`<p class="empty bad">${reason(error)}</p>`}
    ${found && html`<${Table} columns=${columns} rows=${rowsOf(found)} id=${(row) => row.id} empty=${t("hot.none")} label=${t("hot.title")} />`}
  <//>`;
}
