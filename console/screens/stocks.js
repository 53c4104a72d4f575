// Stocks: what is available, held and sold, who holds it, and who refills it.

import { asText, call, Failure, keyId, keyOf } from "../api.js";
import { duration, number } from "../format.js";
import { html } from "../html.js";
import { t } from "../lang.js";
import { now, queryOf, topics } from "../live.js";
import { actions, ask, Facts, Fault, Finder, Found, Key, KeyHead, Lease, notify, Panel, reason, Table } from "../parts.js";
import { chosen, database, withParams } from "../route.js";
import { Scan } from "../scan.js";
import { stillHeld } from "./locks.js";

const scan = new Scan("stocks", ["stock"], 50);

export const query = () => queryOf("stocks", database(), chosen(), scan.state.value.found);

const stateOf = (id) => topics.value.stocks && topics.value.stocks[id];

// The colour of a part of the bar, beside its name.
function Part({ of }) {
  return html`<i class=${"part " + of} aria-hidden="true"></i>`;
}

// How the total is shared: held and sold as parts of a bar.
function Meter({ state }) {
  const total = Math.max(1, state.available + state.held + state.sold);
  const part = (name, value) => html`<i class=${name} style=${{ width: ((100 * value) / total).toFixed(2) + "%" }}></i>`;
  return html`<div class="meter" role="img" aria-label=${t("stocks.meter", { available: state.available, held: state.held, sold: state.sold })}>
    ${part("a", state.available)}${part("b", state.held)}${part("c", state.sold)}
  </div>`;
}

function cancel(id, { order, token }) {
  const db = database();
  ask({
    title: t("stocks.cancel.title"),
    body: html`<p>${t("stocks.cancel.body")}</p><p><${Key} of=${keyOf(id)} /> · <${Key} of=${order} /></p>`,
    verb: t("stocks.cancel.verb"),
    isBad: true,
    act: async () => {
      await stillHeld(id, db, order, token);
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
    actions((row) => html`<button class="is-bad" onClick=${() => cancel(id, row)}>${t("stocks.cancel.verb")}</button>`),
  ];
  const list = (state && state.list) || [];
  const head = html`<${KeyHead} id=${id} />`;
  if (!state) return html`<div>${head}<p class="empty">${t("loading")}</p></div>`;
  if (state.error || state.reason) return html`<div>${head}<p class="empty bad">${state.error ? reason(new Failure(state.error)) : t("stocks.gone")}</p></div>`;
  return html`<div>${head}
    <${Panel}><div class="body">
      <${Meter} state=${state} /><div class="gap"></div>
      <${Facts} of=${[
        [html`<${Part} of="a" />${t("col.available")}`, number(state.available)],
        [html`<${Part} of="b" />${t("col.held")}`, number(state.held)],
        [html`<${Part} of="c" />${t("col.sold")}`, number(state.sold)],
        [t("col.total"), number(state.total)],
        [t("stocks.buyers"), number(state.buyers)],
        state.low > 0 && [t("stocks.low"), number(state.low)],
        state.refiller && asText(state.refiller) && [t("stocks.refiller"), html`<${Key} of=${state.refiller} /> <span class="muted">${duration(state["refill-ms"])}</span>`],
        state.stream && asText(state.stream) && [t("stocks.stream"), html`<${Key} of=${state.stream} />`],
        state["period-ms"] > 0 && [t("stocks.period"), duration(state["period-ms"])],
      ]} />
    </div><//>
    <${Panel} title=${t("stocks.holds", { n: number(state.holds) })}>
      ${state["refused-list"]
        ? html`<p class="empty bad">${reason(new Failure(state["refused-list"]))}</p>`
        : html`<${Table} columns=${columns} rows=${list} id=${(row) => row.token} empty=${t("stocks.no-holds")} label=${t("stocks.holds", { n: number(state.holds) })} />
          ${state.holds > list.length && html`<p class="empty">${t("more", { n: number(state.holds - list.length) })}</p>`}`}
    <//>
  </div>`;
}

export function Screen() {
  const id = chosen();
  const rows = scan.state.value.found.map(({ key }) => ({ key, state: stateOf(keyId(key)) || {} }));
  const count = (name, part) => ({ name: html`<${Part} of=${part} />${t("col." + name)}`, num: true, cell: (row) => (row.state[name] === undefined ? "" : number(row.state[name])) });
  const columns = [
    { name: t("col.key"), cell: (row) => html`<a href=${withParams({ key: keyId(row.key) })}><${Key} of=${row.key} /></a><${Fault} of=${row.state} />` },
    count("available", "a"),
    count("held", "b"),
    count("sold", "c"),
    { name: html`<span class="hidden-text">${t("stocks.share")}</span>`, cell: (row) => row.state.total !== undefined && html`<div style=${{ minWidth: "90px" }}><${Meter} state=${row.state} /></div>` },
  ];
  return html`
    <header><h1>${t("nav.stocks")}</h1><span class="muted">${t("stocks.about")}</span></header>
    <${Finder} placeholder=${t("stocks.search")} opens />
    <div class=${"beside" + (id ? "" : " is-single")}>
      <${Found} scan=${scan} none=${t("stocks.none")} columns=${id ? columns.slice(0, 4) : columns} rows=${rows} label=${t("nav.stocks")} />
      ${id && html`<${Detail} id=${id} />`}
    </div>
  `;
}
