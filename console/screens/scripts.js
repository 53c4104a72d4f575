// Scripts and functions: how often and how fast they run, their texts and contracts, slow calls, faults, and the trace of one call.

import { effect, signal } from "../vendor/signals-core.module.js";
import { asText, call, Failure, plain, run, runAsIs } from "../api.js";
import { clock, micros, number } from "../format.js";
import { html } from "../html.js";
import { t } from "../lang.js";
import { Facts, Panel, reason, Search, Table } from "../parts.js";
import { adjust, isShown, route, withParams } from "../route.js";
import { show as asShown, wordsOf } from "./command.js";

const list = signal({ scripts: null, slow: null, stats: null });
const detail = signal({ name: null });
const linted = signal(null);
const traced = signal(null);
let entered = false;

effect(() => {
  if (!isShown("scripts")) {
    entered = false;
  } else if (!entered) {
    entered = true;
    read();
  }
});

const chosenScript = () => (isShown("scripts") ? route.value.params.get("script") : null);

effect(() => {
  const name = chosenScript();
  if (name && (detail.peek().name !== name || detail.peek().error)) readOne(name);
});

async function read() {
  try {
    const [scripts, slow, stats] = await runAsIs([["SCRIPT", "LIST"], ["SCRIPT", "SLOW", "GET", "30"], ["SCRIPT", "STATS"]]);
    list.value = { scripts: plain(scripts), slow, stats };
  } catch (error) {
    const failed = { error: reason(error) };
    list.value = { scripts: new Failure(failed.error), slow: failed, stats: failed };
  }
}

function again() {
  read();
  if (chosenScript()) readOne(chosenScript());
}

async function readOne(name) {
  const show = (said) => chosenScript() === name && (detail.value = { name, ...said });
  show({});
  try {
    const [reply] = await runAsIs([["SCRIPT", "SHOW", name]]);
    const said = plain(reply);
    if (said instanceof Failure) throw said;
    const text = said.text ?? said.script ?? said.code;
    const [warnings] = text ? await run([["SCRIPT", "LINT", text]]) : [[]];
    show({ said, text, warnings, shown: asShown(reply) });
  } catch (error) {
    show({ error });
  }
}

async function lint(event) {
  event.preventDefault();
  try {
    linted.value = { warnings: await call(["SCRIPT", "LINT", new FormData(event.target).get("text")]) };
  } catch (error) {
    linted.value = { error };
  }
}

async function trace(event) {
  event.preventDefault();
  const words = wordsOf(new FormData(event.target).get("words"));
  if (!words) {
    traced.value = { error: new Failure(t("command.quotes")) };
    return;
  }
  try {
    const [reply] = await runAsIs([["SCRIPT", "TRACE", ...words]]);
    traced.value = { reply: asShown(reply) };
  } catch (error) {
    traced.value = { error };
  }
}

function Warnings({ of }) {
  if (of instanceof Failure) return html`<p class="bad">${reason(of)}</p>`;
  if (!of || !of.length) return html`<p class="good">${t("scripts.no-warnings")}</p>`;
  return html`<pre class="value">${of.map((warning) => (typeof warning === "object" && !Array.isArray(warning) ? Object.values(warning).map(asText).join("  ") : Array.isArray(warning) ? warning.map(asText).join("  ") : asText(warning))).join("\n")}</pre>`;
}

// A reply as text, or why there is none.
function shown(reply) {
  const said = plain(reply);
  return said instanceof Failure ? reason(said) : asShown(reply);
}

const time = (value) => (value === undefined || value === null ? "" : micros(Number(value)));

export function Screen() {
  const { params } = route.value;
  const text = params.get("q") || "";
  const name = params.get("script");
  const { scripts, slow, stats } = list.value;
  const rows = Array.isArray(scripts) ? scripts.filter((row) => !text || Object.values(row).some((value) => asText(value).includes(text))) : [];
  const count = (name, format) => ({ name: t("scripts." + name), num: true, cell: (row) => (row.calls || name === "calls" ? format(row[name]) : "–") });
  const columns = [
    { name: t("col.name"), cell: (row) => html`<a class="mono" href=${withParams({ script: asText(row.name) })}>${asText(row.name).slice(0, 60)}</a>` },
    { name: t("scripts.origin"), cell: (row) => [row.origin, row.library].filter(Boolean).map(asText).join(" · ") },
    count("calls", number),
    count("errors", number),
    count("p50_us", time),
    count("p99_us", time),
    count("max_us", time),
    { name: t("col.last-time"), num: true, cell: (row) => (row.last_call_ms > 0 ? clock(row.last_call_ms) : t("never")) },
  ];
  const one = detail.value.name === name ? detail.value : {};
  return html`
    <header><h1>${t("nav.scripts")}</h1><span class="muted">${t("scripts.about")}</span></header>
    <div class="tools">
      <${Search} value=${text} placeholder=${t("scripts.search")} onSearch=${(q) => adjust({ q })} />
      <button onClick=${again}>${t("again")}</button>
    </div>
    ${name && html`<${Panel} title=${name} tools=${html`<a class="button" href=${withParams({ script: "" })}>${t("close")}</a>`}>
      <div class="body">
        ${one.error ? html`<p class="bad">${reason(one.error)}</p>` : !one.said ? html`<p class="muted">${t("loading")}</p>` : html`
          <${Facts} of=${Object.entries(one.said).filter(([, value]) => typeof value !== "object" && value !== one.text && asText(value).length < 80).map(([field, value]) => [field, asText(value)])} />
          <div class="gap"></div><h2>${t("scripts.warnings")}</h2><${Warnings} of=${one.warnings} />
          <div class="gap"></div><pre class="value">${typeof one.text === "string" ? one.text.split("\n").map(asText).join("\n") : one.shown}</pre>`}
      </div>
    <//>`}
    <${Panel} title=${t("scripts.loaded")}>
      ${scripts instanceof Failure ? html`<p class="empty bad">${reason(scripts)}</p>` : html`<${Table} columns=${columns} rows=${rows} empty=${scripts ? t("scripts.none") : t("loading")} label=${t("scripts.loaded")} />`}
    <//>
    <div class="columns">
      <${Panel} title=${t("scripts.slow")}><div class="body"><pre class="value">${slow === null ? t("loading") : Array.isArray(slow) && !slow.length ? t("scripts.no-slow") : shown(slow)}</pre></div><//>
      <${Panel} title=${t("scripts.stats")}><div class="body"><pre class="value">${stats ? shown(stats) : t("loading")}</pre></div><//>
    </div>
    <div class="columns">
      <${Panel} title=${t("scripts.lint")}><form class="body" onSubmit=${lint}>
        <label><span>${t("scripts.lint.text")}</span><textarea class="key" name="text" rows="6" spellcheck=${false} required></textarea></label><div class="gap"></div>
        <button>${t("scripts.lint")}</button>
        ${linted.value && (linted.value.error ? html`<p class="bad">${reason(linted.value.error)}</p>` : html`<${Warnings} of=${linted.value.warnings} />`)}
      </form><//>
      <${Panel} title=${t("scripts.trace")}><form class="body" onSubmit=${trace}>
        <label><span>${t("scripts.trace.words")}</span><input class="key" name="words" spellcheck=${false} required placeholder="lease_gate_acquire 1 gate:devices job-1 3 30000" /></label><div class="gap"></div>
        <button>${t("scripts.trace")}</button> <span class="muted">${t("scripts.trace.note")}</span>
        ${traced.value && (traced.value.error ? html`<p class="bad">${reason(traced.value.error)}</p>` : html`<pre class="value">${traced.value.reply}</pre>`)}
      </form><//>
    </div>
  `;
}
