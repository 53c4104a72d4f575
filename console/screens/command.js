// A command line, with the hints of COMMAND DOCS. What was asked is kept while the page is open.

import { Component } from "../vendor/preact.module.js";
import { signal } from "../vendor/signals-core.module.js";
import { asText, Failure, run, runAsIs } from "../api.js";
import { html } from "../html.js";
import { t } from "../lang.js";
import { Database, Panel, reason } from "../parts.js";
import { database } from "../route.js";

const asked = signal([]);
const line = signal("");
const docs = signal(null);
let docsAsked = false;
let at = 0;

// Escapes between double quotes, besides \x and two digits.
const ESCAPES = { n: "\n", r: "\r", t: "\t", b: "\b", a: "\x07" };

// Splits a line into words as redis-cli does: quotes keep blanks together, and \x escapes stand for bytes. A word with
// bytes beyond ASCII of which escapes told is { hex }. Returns null if a quote is not closed.
export function wordsOf(text) {
  const words = [];
  let rest = text.trim();
  while (rest) {
    // Characters, and bytes as numbers.
    const parts = [];
    const quote = rest[0] === '"' || rest[0] === "'" ? rest[0] : "";
    let index = quote ? 1 : 0;
    for (; ; index += 1) {
      if (index >= rest.length) {
        if (quote) return null;
        break;
      }
      const c = rest[index];
      if (quote ? c === quote : /\s/.test(c)) break;
      const hex = quote === '"' && /^\\x([0-9a-fA-F]{2})/.exec(rest.slice(index));
      if (hex) {
        parts.push(parseInt(hex[1], 16));
        index += 3;
      } else if (quote === '"' && c === "\\" && index + 1 < rest.length) {
        index += 1;
        parts.push(ESCAPES[rest[index]] ?? rest[index]);
      } else {
        parts.push(c);
      }
    }
    words.push(wordOf(parts));
    rest = rest.slice(quote ? index + 1 : index);
    if (quote && rest && !/^\s/.test(rest)) return null;
    rest = rest.trimStart();
  }
  return words;
}

function wordOf(parts) {
  const text = parts.map((part) => (typeof part === "number" ? String.fromCharCode(part) : part)).join("");
  if (!parts.some((part) => typeof part === "number" && part > 127)) return text;
  // A character may consist of two parts, which only together have bytes.
  const runs = [];
  for (const part of parts) {
    if (typeof part === "number") runs.push([part]);
    else if (typeof runs.at(-1) === "string") runs.push(runs.pop() + part);
    else runs.push(part);
  }
  const bytes = runs.flatMap((run) => (typeof run === "string" ? [...new TextEncoder().encode(run)] : run));
  return { hex: bytes.map((byte) => byte.toString(16).padStart(2, "0")).join("") };
}

// A reply, as it was sent, in the form in which redis-cli shows it. Maps keep their order and their duplicates.
export function show(value, indent = "") {
  if (value === null) return "(nil)";
  if (typeof value === "number") return (Number.isInteger(value) ? "(integer) " : "(double) ") + value;
  if (typeof value === "string") return '"' + asText(value) + '"';
  if (typeof value === "boolean") return "(" + value + ")";
  if (Array.isArray(value)) {
    if (!value.length) return "(empty array)";
    const wide = String(value.length).length;
    return value
      .map((item, index) => {
        const head = String(index + 1).padStart(wide) + ") ";
        return (index ? indent : "") + head + show(item, indent + " ".repeat(head.length));
      })
      .join("\n");
  }
  if ("error" in value) return "(error) " + value.error;
  if ("status" in value) return asText(value.status);
  if ("number" in value) return (/^-?\d+$/.test(value.number) ? "(integer) " : "(double) ") + value.number;
  if ("hex" in value || "cut" in value) return '"' + asText(value) + '"' + ("bytes" in value ? ` (${value.bytes} bytes)` : "");
  const entries = pairs(value.map || value.push || []);
  if (!entries.length) return "(empty map)";
  const wide = String(entries.length).length;
  return entries
    .map(([name, item], index) => {
      const head = String(index + 1).padStart(wide) + "# ";
      const label = head + name + " => ";
      return (index ? indent : "") + label + show(item, indent + " ".repeat(head.length + 2));
    })
    .join("\n");
}

// The keys and values of a map. A key may be of any type, and is shown on one line.
function pairs(items) {
  const found = [];
  for (let at = 0; at + 1 < items.length; at += 2) found.push([show(items[at]).replace(/\s+/g, " "), items[at + 1]]);
  return found;
}

async function askDocs() {
  if (docsAsked) return;
  docsAsked = true;
  try {
    const [found] = await run([["COMMAND", "DOCS"]]);
    docs.value = found instanceof Failure ? {} : found;
  } catch {
    docsAsked = false;
  }
}

// The syntax of an argument, from its description.
function syntax(argument) {
  const inner = (argument.arguments || []).map(syntax);
  const flags = argument.flags || [];
  const name = argument["display_text"] || argument.name;
  let text =
    argument.type === "pure-token" ? argument.token
      : argument.type === "oneof" ? inner.join(" | ")
        : argument.type === "block" ? inner.join(" ")
          : name;
  if (argument.type === "oneof" && !flags.includes("optional") && inner.length > 1) text = "<" + text + ">";
  if (argument.token && argument.type !== "pure-token") text = argument.token + " " + text;
  if (flags.includes("multiple")) text = `${text} [${text} ...]`;
  return flags.includes("optional") ? "[" + text + "]" : text;
}

// What is known of the command that the line begins with.
function hint() {
  const words = (wordsOf(line.value) || line.value.trim().split(/\s+/)).filter((word) => typeof word === "string");
  if (!words.length || !docs.value) return null;
  const found = docs.value[words[0].toLowerCase()];
  if (!found) {
    const near = Object.keys(docs.value).filter((name) => name.startsWith(words[0].toLowerCase())).sort().slice(0, 12);
    return near.length ? html`<span class="muted mono">${near.join("  ")}</span>` : null;
  }
  const subs = found.subcommands || {};
  const sub = words[1] && subs[(words[0] + "|" + words[1]).toLowerCase()];
  if (!sub && Object.keys(subs).length) {
    const names = Object.keys(subs).map((name) => name.split("|")[1]).sort();
    return html`<span class="muted mono">${names.join("  ")}</span>`;
  }
  const entry = sub || found;
  const name = (sub ? words.slice(0, 2) : words.slice(0, 1)).join(" ").toUpperCase();
  return html`<span><span class="mono">${name} ${(entry.arguments || []).map(syntax).join(" ")}</span><br /><span class="muted">${entry.summary}</span></span>`;
}

async function submit(event) {
  event.preventDefault();
  const text = line.value.trim();
  if (!text) return;
  const words = wordsOf(text);
  const entry = { text, reply: null, isBad: false };
  const done = (reply, isBad) => {
    asked.value = asked.value.map((other) => (other === entry ? Object.assign(entry, { reply, isBad }) && { ...entry } : other));
  };
  asked.value = [...asked.value.slice(-99), entry];
  at = asked.value.length;
  line.value = "";
  if (!words) return done(t("command.quotes"), true);
  try {
    const [reply] = await runAsIs([words], database());
    done(show(reply), reply !== null && typeof reply === "object" && "error" in reply);
  } catch (error) {
    done(reason(error), true);
  }
}

function recall(event) {
  const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  if (!step) return;
  event.preventDefault();
  at = Math.max(0, Math.min(asked.value.length, at + step));
  line.value = at < asked.value.length ? asked.value[at].text : "";
}

// What was asked, and the replies. A new one scrolls into view.
class Replies extends Component {
  componentDidMount() {
    this.scroll();
  }

  componentDidUpdate() {
    if (asked.peek() !== this.seen) this.scroll();
  }

  scroll() {
    this.seen = asked.peek();
    this.log.scrollTop = this.log.scrollHeight;
  }

  render() {
    return html`<div class="console-out" role="log" aria-live="polite" tabindex="0" aria-label=${t("nav.command")} ref=${(log) => (this.log = log || this.log)}>
      ${asked.value.length
        ? asked.value.map((entry) => html`<pre class="asked">> ${asText(entry.text)}</pre><pre class=${entry.isBad ? "bad" : ""}>${entry.reply ?? "…"}</pre>`)
        : html`<p class="muted">${t("command.empty")}</p>`}
    </div>`;
  }
}

export function Screen() {
  askDocs();
  return html`
    <header><h1>${t("nav.command")}</h1><span class="muted">${t("command.about")}</span></header>
    <${Panel}>
      <${Replies} />
      <form class="body tools" onSubmit=${submit}>
        <input class="key grow" style=${{ maxWidth: "none" }} data-search aria-label=${t("nav.command")} placeholder="WHO lock:report" autocomplete="off" autocapitalize="none" spellcheck=${false}
          value=${line.value} onInput=${(event) => (line.value = event.target.value)} onKeyDown=${recall} />
        <${Database} />
        <button class="is-main">${t("command.verb")}</button>
      </form>
      <div class="body" style=${{ minHeight: "62px" }}>${hint()}</div>
    <//>
  `;
}
