// Pieces that several screens are made of.

import { Component } from "./vendor/preact.module.js";
import { signal } from "./vendor/signals-core.module.js";
import { asText, Failure, keyId, keyOf, Refused } from "./api.js";
import { countdown, number, percent, short } from "./format.js";
import { html } from "./html.js";
import { knows, t } from "./lang.js";
import { now, observe } from "./live.js";
import { adjust, chosen, database, route, withParams } from "./route.js";
import { isPattern } from "./scan.js";

// A key or another name that a client chose.
export function Key({ of }) {
  return html`<span class="key">${asText(of)}</span>`;
}

export function Panel({ title, tools, children }) {
  return html`<section class="panel">
    ${title && html`<header><h2>${title}</h2><span class="space"></span>${tools}</header>`}
    ${children}
  </section>`;
}

// A table, whose label names it for those who can't see it. A column is { name, cell(row), num }; rows that lead
// somewhere have an address.
export function Table({ columns, rows, empty, address, id, selected, label }) {
  if (!rows.length) return html`<p class="empty">${empty}</p>`;
  const open = (row) => (event) => {
    if (!event.target.closest("a,button,input")) location.hash = address(row);
  };
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label}>
    <table>
      <thead><tr>${columns.map((column) => html`<th scope="col" class=${column.num ? "num" : ""}>${column.name}</th>`)}</tr></thead>
      <tbody>${rows.map((row, at) => html`<tr
        key=${id ? id(row) : at}
        data-id=${address && id ? id(row) : undefined}
        ref=${address ? observe : undefined}
        class=${address ? "is-link" : ""}
        aria-selected=${selected === undefined ? undefined : String(id(row) === selected)}
        onClick=${address && open(row)}
      >${columns.map((column) => html`<td class=${column.num ? "num" : ""}>${column.cell(row, at)}</td>`)}</tr>`)}</tbody>
    </table>
  </div>`;
}

// A column of buttons.
export const actions = (cell) => ({ name: html`<span class="hidden-text">${t("col.action")}</span>`, cell });

// The keys that a search has found, as a table whose rows have a `key` each, and how far the search is.
export function Found({ scan, none, columns, rows, label }) {
  const { found, looked, done, busy, error } = scan.state.value;
  const id = ({ key }) => keyId(key);
  const far = busy ? t("scan.busy", { n: number(looked) }) : t(done ? "scan.all" : "scan.some", { n: number(found.length) });
  return html`<${Panel}>
    ${(found.length > 0 || done) && html`<${Table} columns=${columns} rows=${rows} id=${id} selected=${chosen() || undefined} label=${label}
      address=${(row) => withParams({ key: id(row), find: "" })} empty=${scan.text ? t("scan.none", { text: scan.text }) : none} />`}
    <div class="body tools">
      <span class="muted">${error ? html`<span class="bad">${reason(error)}</span>` : far}</span>
      ${busy && html`<button onClick=${() => scan.stop()}>${t("scan.stop")}</button>`}
      ${!busy && !done && html`<button onClick=${() => scan.more()}>${t("scan.more")}</button>`}
    </div>
  <//>`;
}

// The search above the keys of a screen, and their database. Where it `opens`, a whole name leads to its key.
export function Finder({ placeholder, opens, children }) {
  const find = (q, isWhole) => adjust({ q, ...(opens && isWhole && q && !isPattern(q) ? { key: keyId(q), find: "" } : {}) });
  return html`<div class="tools">
    <${Search} value=${route.value.params.get("q") || ""} placeholder=${placeholder} onSearch=${find} />${children}<${Database} />
  </div>`;
}

// The head of what is shown of the chosen key.
export function KeyHead({ id, about, children }) {
  return html`<header class="panel"><div class="body tools">
    <div class="grow"><h2><${Key} of=${keyOf(id)} /></h2><span class="muted">${about}</span></div>
    ${children}
    <a class="button" href=${withParams({ key: "", find: "" })}>${t("close")}</a>
  </div></header>`;
}

// Why a row of a list shows nothing.
export function Fault({ of }) {
  return of && of.error ? html` <span class="bad">${reason(new Failure(of.error))}</span>` : null;
}

// What is left of a lease, as a bar that becomes shorter. Its whole length is the longest time that was left.
const longest = new Map();

export function Lease({ endsMs, sinceMs, id }) {
  if (endsMs === undefined || endsMs === null || endsMs < 0) return html`<span class="muted">${t("lease.none")}</span>`;
  const left = endsMs - now.value;
  const known = longest.get(id);
  // A lease that was extended begins anew.
  const whole = known && known.endsMs === endsMs ? known.whole : Math.max(left, sinceMs > 0 && !known ? endsMs - sinceMs : 0, 1);
  if (longest.size > 5000) longest.clear();
  longest.set(id, { endsMs, whole });
  const share = Math.max(0, Math.min(1, left / whole));
  const state = left <= 0 ? "is-over" : share < 0.2 ? "is-ending" : "";
  return html`<div class=${"lease " + state}>
    <div class="track" aria-hidden="true"><i style=${{ transform: `scaleX(${share.toFixed(3)})` }}></i></div>
    <span>${left <= 0 ? t("lease.over") : countdown(left)}</span>
  </div>`;
}

// A part of a whole, as a bar.
export function Share({ of }) {
  if (of === undefined) return html`<span class="muted">–</span>`;
  return html`<div class="share">
    <div class="track" aria-hidden="true"><i style=${{ transform: `scaleX(${Math.min(1, of).toFixed(3)})` }}></i></div>
    <span>${percent(of)}</span>
  </div>`;
}

export function Facts({ of }) {
  return html`<dl class="facts">${of
    .filter(Boolean)
    .map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

// Values over time, the newest last. `null` is a gap.
export function Chart({ name, value, unit, points, format = short, note }) {
  const width = 300;
  const height = 54;
  const known = points.filter((point) => point !== null);
  const top = Math.max(...known, 1e-9);
  const x = (at) => (points.length < 2 ? width : (at / (points.length - 1)) * width);
  const y = (point) => height - 1 - (point / top) * (height - 4);
  let line = "";
  points.forEach((point, at) => {
    if (point !== null) line += `${line && points[at - 1] !== null ? "L" : "M"}${x(at).toFixed(1)} ${y(point).toFixed(1)}`;
  });
  const begin = points.findIndex((point) => point !== null);
  const area = begin < 0 || points.includes(null, begin) ? "" : `${line}L${width} ${height}L${x(begin).toFixed(1)} ${height}Z`;
  const spoken = known.length ? t("chart.spoken", { least: format(Math.min(...known)), most: format(top) }) : "";
  return html`<figure class="chart">
    <figcaption class="name">${name}</figcaption>
    <div class="value">${value} <small>${unit}</small></div>
    <svg viewBox=${`0 0 ${width} ${height}`} preserveAspectRatio="none" role="img" aria-label=${`${name}: ${spoken}`}>
      <path class="area" d=${area}></path>
      <path class="base" d=${`M0 ${height - 0.5}H${width}`}></path>
      <path class="line" d=${line}></path>
    </svg>
    <div class="muted">${note || (known.length > 1 ? t("chart.most", { most: format(top) }) : " ")}</div>
  </figure>`;
}

// Short messages in a corner.
const notices = signal([]);
let lastNotice = 0;

export function notify(text, isBad = false) {
  const id = (lastNotice += 1);
  notices.value = [...notices.value, { id, text, isBad }];
  setTimeout(() => (notices.value = notices.value.filter((notice) => notice.id !== id)), isBad ? 9000 : 4000);
}

export function Notices() {
  return html`<div class="notices" role="status" aria-live="polite">${notices.value.map(
    (notice) => html`<div key=${notice.id} class=${notice.isBad ? "is-bad" : ""}>${notice.text}</div>`,
  )}</div>`;
}

// Why something did not work, in words.
export function reason(error) {
  if (error instanceof Failure) return error.isDenied ? t("error.denied", { text: error.text }) : error.text;
  if (error instanceof Refused) {
    if (error.code === "command") return reason(new Failure(error.message));
    const name = "refused." + error.code;
    return knows(name) ? t(name, { text: error.message }) : error.message;
  }
  return String(error);
}

// A question before something is done: a form in a dialog.
const question = signal(null);

// Asks. `act` gets the fields of the form; if it fails, the dialog stays and says why. What `isTold` only can't be
// declined.
export function ask(asked) {
  question.value = { ...asked, error: "", busy: false };
}

export class Dialog extends Component {
  componentDidUpdate() {
    if (this.dialog && !this.dialog.open) this.dialog.showModal();
  }

  render() {
    const asked = question.value;
    if (!asked) return null;
    // The browser gives the focus back to where it was. The question ends at once: as long as there is one, the next
    // drawing of the page would open the dialog again.
    const close = () => {
      this.dialog.close();
      question.value = null;
    };
    const cancel = (event) => {
      event.preventDefault();
      close();
    };
    const closed = () => question.peek() === asked && (question.value = null);
    const submit = async (event) => {
      event.preventDefault();
      const fields = Object.fromEntries(new FormData(event.target));
      const own = { ...asked, busy: true, error: "" };
      question.value = own;
      // The reader may have closed the dialog in the meantime, and have another one.
      const isOpen = () => question.peek() === own;
      try {
        await asked.act(fields);
        if (isOpen()) close();
      } catch (error) {
        if (isOpen()) question.value = { ...asked, busy: false, error: reason(error) };
        else notify(reason(error), true);
      }
    };
    return html`<dialog ref=${(dialog) => (this.dialog = dialog)} onCancel=${cancel} onClose=${closed} aria-labelledby="dialog-title">
      <form onSubmit=${submit}>
        <h2 id="dialog-title">${asked.title}</h2>
        ${asked.body}
        ${(asked.fields || []).map(
          (field) => html`<label><span>${field.label}</span>
            <input name=${field.name} class=${field.isKey ? "key" : ""} autocomplete="off" placeholder=${field.placeholder || ""}
              defaultValue=${field.value || ""} required=${field.required} maxlength=${field.most} autofocus=${field.autofocus} /></label>`,
        )}
        <p class="said" role="alert">${asked.error}</p>
        <div class="actions">
          ${!asked.isTold && html`<button type="button" onClick=${close}>${t("cancel")}</button>`}
          <button type="submit" disabled=${asked.busy} class=${"is-main " + (asked.isBad ? "is-bad" : "")}>${asked.verb}</button>
        </div>
      </form>
    </dialog>`;
  }
}

// A field whose value goes where it belongs when the reader has stopped typing. Until then the page may be drawn anew,
// which must not take back what was typed.
export class Search extends Component {
  componentWillUnmount() {
    clearTimeout(this.timer);
  }

  render({ value, placeholder, onSearch, label }) {
    if (value !== this.known) {
      clearTimeout(this.timer);
      this.known = value;
      this.typed = value;
    }
    const later = (event) => {
      this.typed = event.target.value;
      clearTimeout(this.timer);
      this.timer = setTimeout(() => onSearch(this.typed), 350);
    };
    const at = (event) => {
      event.preventDefault();
      clearTimeout(this.timer);
      this.typed = event.target.elements.q.value;
      onSearch(this.typed, true);
    };
    return html`<form class="grow" role="search" aria-label=${label || placeholder} onSubmit=${at}>
      <input name="q" type="search" class="key grow" style=${{ width: "100%" }} data-search value=${this.typed} placeholder=${placeholder} aria-label=${label || placeholder} autocomplete="off" spellcheck=${false} onInput=${later} />
    </form>`;
  }
}

// The database whose keys a screen shows. Another one takes effect as it is typed.
export class Database extends Component {
  render() {
    const known = String(database());
    if (known !== this.known) {
      this.known = known;
      this.typed = known;
    }
    const choose = (event) => {
      this.typed = event.target.value;
      if (/^\d{1,9}$/.test(this.typed)) adjust({ db: Number(this.typed) || "", key: "", find: "" });
    };
    return html`<label class="nowrap" style=${{ gridAutoFlow: "column", alignItems: "center", gap: "6px" }}><span>${t("database")}</span>
      <input type="number" min="0" step="1" style=${{ width: "8ch" }} value=${this.typed} onInput=${choose} /></label>`;
  }
}
