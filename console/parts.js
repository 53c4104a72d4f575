// Pieces that several screens are made of.

import { Component } from "./vendor/preact.module.js";
import { signal } from "./vendor/signals-core.module.js";
import { asText, Failure, Refused } from "./api.js";
import { countdown, number, short } from "./format.js";
import { html } from "./html.js";
import { knows, t } from "./lang.js";
import { now, observe } from "./live.js";

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

// A table. A column is { name, cell(row), num }; rows that lead somewhere have an address.
export function Table({ columns, rows, empty, address, id, selected, label }) {
  if (!rows.length) return html`<p class="empty">${empty}</p>`;
  const open = (row) => (event) => {
    if (!event.target.closest("a,button,input")) location.hash = address(row);
  };
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${label || empty}>
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

// Asks. `act` gets the fields of the form; if it fails, the dialog stays and says why.
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
    const close = () => (question.value = null);
    const submit = async (event) => {
      event.preventDefault();
      const fields = Object.fromEntries(new FormData(event.target));
      const own = { ...asked, busy: true, error: "" };
      question.value = own;
      // The reader may have closed the dialog in the meantime, and have another one.
      const isOpen = () => question.peek() === own;
      try {
        await asked.act(fields);
        if (isOpen()) question.value = null;
      } catch (error) {
        if (isOpen()) question.value = { ...asked, busy: false, error: reason(error) };
        else notify(reason(error), true);
      }
    };
    return html`<dialog ref=${(dialog) => (this.dialog = dialog)} onClose=${close} aria-labelledby="dialog-title">
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
          <button type="button" onClick=${close}>${t("cancel")}</button>
          <button type="submit" disabled=${asked.busy} class=${"is-main " + (asked.isBad ? "is-bad" : "")}>${asked.verb}</button>
        </div>
      </form>
    </dialog>`;
  }
}

// A field whose value goes where it belongs when the reader has stopped typing. Until then the page may be drawn anew,
// which must not take back what was typed.
export class Search extends Component {
  render({ value, placeholder, onSearch, label }) {
    if (value !== this.known) {
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

export { number };
