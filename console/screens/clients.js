// Clients, slow commands, long replies and hot keys.

import { effect, signal } from "../vendor/signals-core.module.js";
import { asText, call, Failure, findClients, run } from "../api.js";
import { bytes, clock, duration, micros, number } from "../format.js";
import { html } from "../html.js";
import { t } from "../lang.js";
import { actions, ask, notify, Panel, reason, Search, Table } from "../parts.js";
import { adjust, isShown, route } from "../route.js";
import { HotKeys } from "./hot.js";

// Rows of a list.
const SHOWN = 200;

const logs = signal({ slow: null, large: null });
// The clients that were found: `list` of them from number `from` on.
const clients = signal({ list: null, found: 0, from: 0 });
let entered = false;
let searched = null;

effect(() => {
  const text = route.value.params.get("q") || "";
  if (!isShown("clients")) {
    entered = false;
    searched = null;
    return;
  }
  if (!entered) readLogs();
  entered = true;
  if (text !== searched) find(text, 0);
  searched = text;
});

// CLIENT LIST has a line for each client, of words such as `id=7`.
function clientsOf(lines) {
  return lines.map((line) => Object.fromEntries(line.split(" ").map((word) => {
    const at = word.indexOf("=");
    return [word.slice(0, at), word.slice(at + 1)];
  })));
}

async function readLogs() {
  try {
    const [slow, large] = await run([["SLOWLOG", "GET", "50"], ["COMMANDLOG", "GET", "20", "LARGE-REPLY"]]);
    logs.value = { slow, large };
  } catch (error) {
    const failure = new Failure(reason(error));
    logs.value = { slow: failure, large: failure };
  }
}

// The server looks through its clients: there may be more than a page should have.
async function find(text, from) {
  try {
    const { lines, found, error } = await findClients(text, from, SHOWN);
    if (searched !== text) return;
    clients.value = error ? { list: new Failure(error), found: 0, from: 0 } : { list: clientsOf(lines), found, from };
  } catch (error) {
    if (searched === text) clients.value = { list: new Failure(reason(error)), found: 0, from: 0 };
  }
}

function again() {
  if (!entered) return;
  readLogs();
  find(searched, clients.value.from);
}

function kill(client) {
  ask({
    title: t("clients.kill.title"),
    body: html`<p>${t("clients.kill.body")}</p><p class="mono">${client.addr} ${client.name}</p>`,
    verb: t("clients.kill.verb"),
    isBad: true,
    act: async () => {
      const count = await call(["CLIENT", "KILL", "ID", client.id]);
      notify(count ? t("clients.kill.done") : t("clients.kill.gone"));
      again();
    },
  });
}

function Clients() {
  const { list, found, from } = clients.value;
  if (list === null) return html`<p class="empty">${t("loading")}</p>`;
  if (list instanceof Failure) return html`<p class="empty bad">${reason(list)}</p>`;
  const columns = [
    { name: t("col.id"), num: true, cell: (row) => row.id },
    { name: t("col.address"), cell: (row) => html`<span class="mono">${row.addr}</span>` },
    { name: t("col.name"), cell: (row) => row.name },
    { name: t("col.user"), cell: (row) => row.user },
    { name: t("col.library"), cell: (row) => [row["lib-name"], row["lib-ver"]].filter(Boolean).join(" ") },
    { name: t("col.last"), cell: (row) => html`<span class="mono">${row.cmd}</span>` },
    { name: t("col.idle"), num: true, cell: (row) => duration(row.idle * 1000) },
    { name: t("col.age"), num: true, cell: (row) => duration(row.age * 1000) },
    { name: t("col.memory"), num: true, cell: (row) => bytes(row["tot-mem"]) },
    actions((row) => html`<button class="is-bad" onClick=${() => kill(row)}>${t("clients.kill.verb")}</button>`),
  ];
  const step = (to) => html`<button onClick=${() => find(searched, to)}>${t(to < from ? "clients.before" : "clients.next")}</button>`;
  return html`<${Table} columns=${columns} rows=${list} id=${(row) => row.id} empty=${t("clients.none")} label=${t("nav.clients")} />
    ${found > SHOWN && html`<div class="body tools"><span class="muted">${t("clients.range", { from: number(from + 1), to: number(from + list.length), all: number(found) })}</span>
      ${from > 0 && step(Math.max(0, from - SHOWN))}${from + list.length < found && step(from + SHOWN)}</div>`}`;
}

// A log of commands: number, time, figure, words, address, name.
function Log({ title, list, figure, name, empty }) {
  if (list instanceof Failure) return html`<${Panel} title=${title}><p class="empty bad">${reason(list)}</p><//>`;
  const columns = [
    { name: t("col.when"), cell: (row) => html`<span class="nowrap">${clock(row[1] * 1000)}</span>` },
    { name, num: true, cell: (row) => figure(row[2]) },
    { name: t("col.command"), cell: (row) => html`<span class="key">${row[3].map(asText).join(" ")}</span>` },
    { name: t("col.client"), cell: (row) => html`<span class="mono">${asText(row[4])}</span> <span class="muted">${asText(row[5])}</span>` },
  ];
  return html`<${Panel} title=${title}><${Table} columns=${columns} rows=${list || []} id=${(row) => row[0]} empty=${list ? empty : t("loading")} label=${title} /><//>`;
}

export function Screen() {
  const { params } = route.value;
  return html`
    <header><h1>${t("nav.clients")}</h1><span class="muted">${t("clients.about")}</span></header>
    <div class="tools">
      <${Search} value=${params.get("q") || ""} placeholder=${t("clients.search")} onSearch=${(q) => adjust({ q })} />
      <button onClick=${again}>${t("again")}</button>
    </div>
    <${Panel} title=${t("clients.connected")}><${Clients} /><//>
    <div class="columns">
      <${Log} title=${t("clients.slow")} list=${logs.value.slow} figure=${micros} name=${t("col.took")} empty=${t("clients.no-slow")} />
      <${Log} title=${t("clients.large")} list=${logs.value.large} figure=${bytes} name=${t("col.size")} empty=${t("clients.no-large")} />
    </div>
    <${HotKeys} />
  `;
}

