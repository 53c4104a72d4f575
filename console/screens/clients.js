// Clients, slow commands, hot keys, and what takes the memory.

import { effect, signal } from "../vendor/signals-core.module.js";
import { asText, call, Failure, run } from "../api.js";
import { bytes, clock, duration, micros, number } from "../format.js";
import { html } from "../html.js";
import { t } from "../lang.js";
import { ask, notify, Panel, reason, Search, Table } from "../parts.js";
import { adjust, route } from "../route.js";

// Rows of a list.
const SHOWN = 200;

const state = signal({ clients: null, slow: null, large: null });
let entered = false;

effect(() => {
  if (route.value.screen !== "clients") {
    entered = false;
  } else if (!entered) {
    entered = true;
    read();
  }
});

// CLIENT LIST has a line for each client, of words such as `id=7`.
function clientsOf(text) {
  return text.split("\n").filter(Boolean).map((line) => Object.fromEntries(line.split(" ").map((word) => {
    const at = word.indexOf("=");
    return [word.slice(0, at), word.slice(at + 1)];
  })));
}

async function read() {
  try {
    const [clients, slow, large] = await run([["CLIENT", "LIST"], ["SLOWLOG", "GET", "50"], ["COMMANDLOG", "GET", "20", "LARGE-REPLY"]]);
    const text = typeof clients === "object" && clients !== null && "cut" in clients ? clients.cut.slice(0, clients.cut.lastIndexOf("\n")) : clients;
    state.value = {
      clients: typeof text === "string" ? clientsOf(text) : text,
      isCut: text !== clients,
      slow,
      large,
    };
  } catch (error) {
    state.value = { clients: new Failure(reason(error)), slow: [], large: [] };
  }
}

function kill(client) {
  ask({
    title: t("clients.kill.title"),
    body: html`<p>${t("clients.kill.body")}</p><p class="mono">${client.addr} ${client.name}</p>`,
    verb: t("clients.kill.verb"),
    isBad: true,
    act: async () => {
      await call(["CLIENT", "KILL", "ID", client.id]);
      notify(t("clients.kill.done"));
      read();
    },
  });
}

function Clients() {
  const text = route.value.params.get("q") || "";
  const { clients, isCut } = state.value;
  if (clients === null) return html`<p class="empty">${t("loading")}</p>`;
  if (clients instanceof Failure) return html`<p class="empty bad">${reason(clients)}</p>`;
  const rows = clients.filter((client) => !text || Object.entries(client).some(([name, value]) => ["addr", "name", "user", "cmd", "id", "lib-name"].includes(name) && value.includes(text)));
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
    { name: html`<span class="hidden-text">${t("col.action")}</span>`, cell: (row) => html`<button class="is-bad" onClick=${() => kill(row)}>${t("clients.kill.verb")}</button>` },
  ];
  return html`<${Table} columns=${columns} rows=${rows.slice(0, SHOWN)} id=${(row) => row.id} empty=${t("clients.none")} label=${t("nav.clients")} />
    ${(rows.length > SHOWN || isCut) && html`<p class="empty">${t("keys.cut", { n: number(Math.min(SHOWN, rows.length)), all: isCut ? number(rows.length) + "+" : number(rows.length) })}</p>`}`;
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
  return html`<${Panel} title=${title}><${Table} columns=${columns} rows=${list || []} id=${(row) => row[0]} empty=${empty} /><//>`;
}

export function Screen() {
  const { params } = route.value;
  return html`
    <header><h1>${t("nav.clients")}</h1><span class="muted">${t("clients.about")}</span></header>
    <div class="tools">
      <${Search} value=${params.get("q") || ""} placeholder=${t("clients.search")} onSearch=${(q) => adjust({ q })} />
      <button onClick=${read}>${t("again")}</button>
    </div>
    <${Panel} title=${t("clients.connected")}><${Clients} /><//>
    <div class="columns">
      <${Log} title=${t("clients.slow")} list=${state.value.slow} figure=${micros} name=${t("col.took")} empty=${t("clients.no-slow")} />
      <${Log} title=${t("clients.large")} list=${state.value.large} figure=${bytes} name=${t("col.size")} empty=${t("clients.no-large")} />
    </div>
  `;
}

