// What has happened lately, the newest first. The filters are in the address.

import { asText, Failure, keyId } from "../api.js";
import { clock, number } from "../format.js";
import { html } from "../html.js";
import { t } from "../lang.js";
import { topics } from "../live.js";
import { Key, Panel, reason, Search, Table } from "../parts.js";
import { adjust, href, route } from "../route.js";
import { isOfLimit, limitOf } from "./limits.js";
import { eventOf, reasonOf } from "./locks.js";

export const query = () => "events";

const KINDS = ["granted", "refused", "released", "lapsed", "broken", "sold", "removed", "dead-letter", "dead-letter-stays"];

// The screen that shows the key of an event. A grant does not say of what kind it is: most are of locks, and the screen
// of locks leads on to a stock.
function addressOf(row) {
  const address = (screen) => href(screen, { key: keyId(row.key), db: row.db || "" });
  if (isOfLimit(row)) return href("limits", limitOf(row));
  if (row.group !== undefined) return address("queues");
  if (row.event === "sold" || /^stock\./.test(row.command || "")) return address("stocks");
  return address("locks");
}

// What an event says besides its key and holder.
function about(row) {
  if (row.event === "refused") {
    return html`${reasonOf(row.reason)} <span class="muted">${t("in-use", { n: number(row["in-use"]), limit: number(row.limit) })} · ${row.command}</span>`;
  }
  if (row.group !== undefined) return html`${asText(row.group)} · <span class="mono">${asText(row.message)}</span> · ${t("deliveries", { n: number(row.deliveries) })}`;
  return html`${row.token ? t("token", { n: number(row.token) }) : ""} ${row.note ? html`<span class="muted">${asText(row.note)}</span>` : ""}`;
}

export function Screen() {
  const { params } = route.value;
  const state = topics.value.events;
  const [kind, text] = [params.get("event") || "", params.get("q") || ""];
  const failed = state && state.refused;
  // Beside the events there may be a text that says why they are old.
  const all = state && !failed ? Object.keys(state).filter((id) => /^\d/.test(id)).sort().reverse().map((id) => state[id]) : [];
  const has = (row) => [row.key, row.holder, row["client-addr"], row["client-name"], row.note].some((part) => asText(part).includes(text));
  const rows = all.filter((row) => (!kind || row.event === kind) && (!text || has(row)));
  const columns = [
    { name: t("col.when"), cell: (row) => html`<span class="nowrap">${clock(row["at-ms"])}</span>` },
    { name: t("col.event"), cell: (row) => html`<span class=${["lapsed", "broken", "refused"].includes(row.event) ? "warn" : row.event.startsWith("dead") ? "bad" : ""}>${eventOf(row.event)}</span>` },
    { name: t("col.key"), cell: (row) => html`<a href=${addressOf(row)}><${Key} of=${row.key} /></a>` },
    { name: t("col.who"), cell: (row) => html`<${Key} of=${row.holder} />` },
    { name: t("col.about"), cell: about },
    { name: t("col.client"), cell: (row) => html`<span class="mono">${asText(row["client-addr"])}</span>` },
  ];
  return html`
    <header><h1>${t("nav.events")}</h1><span class="muted">${t("events.about")}</span></header>
    <div class="tools">
      <${Search} value=${text} placeholder=${t("events.search")} onSearch=${(q) => adjust({ q })} />
      <label><span class="hidden-text">${t("events.kind")}</span><select onChange=${(event) => adjust({ event: event.target.value })}>
        <option value="" selected=${!kind}>${t("events.all")}</option>
        ${KINDS.map((name) => html`<option value=${name} selected=${name === kind}>${eventOf(name)}</option>`)}
      </select></label>
    </div>
    <${Panel}>
      ${failed
        ? html`<p class="empty bad">${reason(new Failure(failed))}</p>`
        : html`<${Table} columns=${columns} rows=${rows} id=${(row) => row.id} empty=${state ? t("events.none") : t("loading")} label=${t("nav.events")} />`}
    <//>
  `;
}
