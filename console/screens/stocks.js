// Stocks: what is available, held and sold, who holds it, and who refills it.

import { effect } from "../vendor/signals-core.module.js";
import { asText, call, Failure, keyId, keyOf } from "../api.js";
import { duration, number } from "../format.js";
import { html } from "../html.js";
import { t } from "../lang.js";
import { now, queryOf, topics } from "../live.js";
import { ask, Facts, Fault, Key, Lease, notify, Panel, reason, Search, Table } from "../parts.js";
import { adjust, route, withParams } from "../route.js";
import { Scan } from "../scan.js";
import { Database } from "./locks.js";

const PAGE = 50;
const scan = new Scan(["stock"]);
let searched = null;

effect(() => {
  const { screen, params } = route.value;
  if (screen !== "stocks") {
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

export const query = () => queryOf("stocks", database(), chosen(), scan.state.value.found);

const stateOf = (id) => topics.value.stocks && topics.value.stocks[id];

// How the total is shared: held and sold as parts of a bar.
function Meter({ state }) {
  const total = Math.max(1, state.available + state.held + state.sold);
  const part = (name, value) => html`<i class=${name} style=${{ width: ((100 * value) / total).toFixed(2) + "%" }}></i>`;
  return html`<div class="meter" role="img" aria-label=${t("stocks.meter", { available: state.available, held: state.held, sold: state.sold })}>
    ${part("a", state.available)}${part("b", state.held)}${part("c", state.sold)}
  </div>`;
}

function cancel(id, order) {
  const db = database();
  ask({
    title: t("stocks.cancel.title"),
    body: html`<p>${t("stocks.cancel.body")}</p><p><${Key} of=${keyOf(id)} /> · <${Key} of=${order} /></p>`,
    verb: t("stocks.cancel.verb"),
    isBad: true,
    act: async () => {
      const [done, fields] = await call(["STOCK.CANCEL", keyOf(id), order], db);
      notify(done ? t("stocks.cancel.done", { n: number(fields.units) }) : t("stocks.cancel.none"));
    },
  });
}

function Detail({ id }) {
  const state = stateOf(id);
  const columns = [
    { name: t("col.order"), cell: (row) => html`<${Key} of=${row.order} />` },
    { name: t("col.units"), num: true, cell: (row) => number(row.units) },
    { name: t("col.subject"), cell: (row) => html`<${Key} of=${row.subject} />` },
    { name: t("col.since"), num: true, cell: (row) => duration(now.value - row["since-ms"]) },
    { name: t("col.lease"), cell: (row) => html`<${Lease} endsMs=${row["ends-ms"]} sinceMs=${row["since-ms"]} id=${id + " " + row.token} />` },
    { name: html`<span class="hidden-text">${t("col.action")}</span>`, cell: (row) => html`<button class="is-bad" onClick=${() => cancel(id, row.order)}>${t("stocks.cancel.verb")}</button>` },
  ];
  const head = html`<header class="panel"><div class="body tools">
    <div class="grow"><h2><${Key} of=${keyOf(id)} /></h2></div><a class="button" href=${withParams({ key: "" })}>${t("close")}</a>
  </div></header>`;
  if (!state) return html`<div>${head}<p class="empty">${t("loading")}</p></div>`;
  if (state.error || state.reason) return html`<div>${head}<p class="empty bad">${state.error ? reason(new Failure(state.error)) : t("stocks.gone")}</p></div>`;
  return html`<div>${head}
    <${Panel}><div class="body">
      <${Meter} state=${state} /><div class="gap"></div>
      <${Facts} of=${[
        [t("col.available"), number(state.available)],
        [t("col.held"), number(state.held)],
        [t("col.sold"), number(state.sold)],
        [t("col.total"), number(state.total)],
        [t("stocks.buyers"), number(state.buyers)],
        state.low > 0 && [t("stocks.low"), number(state.low)],
        state.refiller && asText(state.refiller) && [t("stocks.refiller"), html`<${Key} of=${state.refiller} /> <span class="muted">${duration(state["refill-ms"])}</span>`],
        state.stream && asText(state.stream) && [t("stocks.stream"), html`<${Key} of=${state.stream} />`],
        state["period-ms"] > 0 && [t("stocks.period"), duration(state["period-ms"])],
      ]} />
    </div><//>
    <${Panel} title=${t("stocks.holds", { n: number(state.holds) })}>
      <${Table} columns=${columns} rows=${state.list || []} id=${(row) => row.token} empty=${t("stocks.no-holds")} />
      ${state.holds > (state.list || []).length && html`<p class="empty">${t("more", { n: number(state.holds - state.list.length) })}</p>`}
    <//>
  </div>`;
}

export function Screen() {
  const { params } = route.value;
  const { found, looked, done, busy, error } = scan.state.value;
  const id = chosen();
  const rows = found.map(({ key }) => ({ key, id: keyId(key), state: stateOf(keyId(key)) || {} }));
  const count = (name) => ({ name: t("col." + name), num: true, cell: (row) => (row.state[name] === undefined ? "" : number(row.state[name])) });
  const columns = [
    { name: t("col.key"), cell: (row) => html`<a href=${withParams({ key: row.id })}><${Key} of=${row.key} /></a><${Fault} of=${row.state} />` },
    count("available"),
    count("held"),
    count("sold"),
    { name: html`<span class="hidden-text">${t("stocks.share")}</span>`, cell: (row) => row.state.total !== undefined && html`<div style=${{ minWidth: "90px" }}><${Meter} state=${row.state} /></div>` },
  ];
  return html`
    <header><h1>${t("nav.stocks")}</h1><span class="muted">${t("stocks.about")}</span></header>
    <div class="tools">
      <${Search} value=${params.get("q") || ""} placeholder=${t("stocks.search")} onSearch=${(q, isWhole) => adjust({ q, ...(isWhole && q && !/[*?[]/.test(q) ? { key: "t:" + q } : {}) })} />
      <${Database} />
    </div>
    <div class=${"beside" + (id ? "" : " is-single")}>
      <${Panel}>
        <${Table} columns=${id ? columns.slice(0, 4) : columns} rows=${rows} id=${(row) => row.id} selected=${id || undefined} address=${(row) => withParams({ key: row.id })}
          empty=${busy ? t("scan.busy", { n: number(looked) }) : t("stocks.none")} label=${t("nav.stocks")} />
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
