// IDs and requests that run once: the last ID of a generator, and whether a request is known.

import { signal } from "../vendor/signals-core.module.js";
import { asText, call, Failure, run } from "../api.js";
import { clock, countdown } from "../format.js";
import { html } from "../html.js";
import { t } from "../lang.js";
import { now, serverNow } from "../live.js";
import { ask, Database, Facts, Key, notify, Panel, reason } from "../parts.js";
import { database } from "../route.js";

// Milliseconds of Unix time at which ID.NEXT counts from, unless a program says otherwise: 2020-01-01.
const EPOCH_MS = 1577836800000;

// Bits of an ID below its time.
const BELOW_BITS = 22n;

const ids = signal({});
const request = signal({});

// What a kept reply begins with.
const MARK = "ff4f4e43450d0a01";

async function lookId(event) {
  event.preventDefault();
  const { key } = Object.fromEntries(new FormData(event.target));
  const db = database();
  try {
    const last = await call(["GET", key], db);
    ids.value = { key, db, last };
  } catch (error) {
    ids.value = { key, db, error };
  }
}

async function lookRequest(event) {
  event.preventDefault();
  readRequest(Object.fromEntries(new FormData(event.target)).key, database());
}

async function readRequest(key, db) {
  try {
    const [type, ttl] = await run([["TYPE", key], ["PTTL", key]], db);
    if (type instanceof Failure) throw type;
    // Any key may have this name. Only a reply that ONCE has kept says that the request has run.
    const mark = type === "string" ? await call(["GETRANGE", key, "0", String(MARK.length / 2 - 1)], db) : null;
    request.value = { key, db, type, endsMs: ttl < 0 ? null : serverNow() + ttl, isKept: mark !== null && mark.hex === MARK };
  } catch (error) {
    request.value = { key, db, error };
  }
}

function forget(key, db) {
  ask({
    title: t("once.forget.title"),
    body: html`<p>${t("once.forget.body")}</p><p><${Key} of=${key} /></p>`,
    verb: t("once.forget.verb"),
    isBad: true,
    act: async () => {
      await call(["UNLINK", key], db);
      notify(t("once.forget.done"));
      readRequest(key, db);
    },
  });
}

// The time in an ID, if it is one of the default shape.
function timeOf(last) {
  try {
    const ms = Number(BigInt(last) >> BELOW_BITS);
    return ms > 1e9 ? EPOCH_MS + ms : null;
  } catch {
    return null;
  }
}

function Form({ onSubmit, placeholder, verb }) {
  return html`<form class="body tools" onSubmit=${onSubmit}>
    <input class="key grow" name="key" required placeholder=${placeholder} aria-label=${t("col.key")} autocomplete="off" spellcheck=${false} />
    <button class="is-main">${verb}</button>
  </form>`;
}

export function Screen() {
  // What was asked of another database is not shown in this one.
  const here = (said) => (said.db === database() ? said : {});
  const { key, last, error } = here(ids.value);
  const asked = here(request.value);
  return html`
    <header><h1>${t("nav.once")}</h1><span class="muted">${t("once.about")}</span><${Database} /></header>
    <div class="columns">
      <${Panel} title=${t("once.ids")}>
        <${Form} onSubmit=${lookId} placeholder="ids:order" verb=${t("once.look")} />
        ${error && html`<p class="empty bad">${reason(error)}</p>`}
        ${key && !error && (last === null
          ? html`<p class="empty">${t("once.no-ids")}</p>`
          : !/^\d+$/.test(asText(last))
          ? html`<p class="empty warn">${t("once.no-id")}</p>`
          : html`<div class="body"><${Facts} of=${[
              [t("once.last"), html`<span class="mono">${asText(last)}</span>`],
              [t("once.shape"), t(timeOf(last) ? "once.snowflake" : "once.counter")],
              timeOf(last) && [t("once.time"), clock(timeOf(last))],
            ]} /></div>`)}
      <//>
      <${Panel} title=${t("once.requests")}>
        <${Form} onSubmit=${lookRequest} placeholder="order:77" verb=${t("once.look")} />
        ${asked.error && html`<p class="empty bad">${reason(asked.error)}</p>`}
        ${asked.key && !asked.error && (asked.type === "none"
          ? html`<p class="empty">${t("once.unknown")}</p>`
          : !asked.isKept
          ? html`<p class="empty warn">${t("once.other")}</p>`
          : html`<div class="body"><${Facts} of=${[
              [t("once.state"), html`<span class="good">${t("once.known")}</span>`],
              [t("once.kept"), asked.endsMs === null ? t("lease.none") : countdown(asked.endsMs - now.value)],
            ]} /><div class="gap"></div><button class="is-bad" onClick=${() => forget(asked.key, asked.db)}>${t("once.forget.verb")}</button></div>`)}
      <//>
    </div>
  `;
}
