// What is wrong first, in words; then how the server is.

import { computed, effect } from "../vendor/signals-core.module.js";
import { call, Failure, run } from "../api.js";
import { bytes, clock, duration, micros, number, short } from "../format.js";
import { html } from "../html.js";
import { t } from "../lang.js";
import { link, now, tick, topics } from "../live.js";
import { ask, Chart, Facts, Key, notify, Panel, reason } from "../parts.js";
import { href } from "../route.js";

export const query = () => "overview";

// Seconds that the charts show.
const SPAN = 300;

// The figures of the last minutes, one for each state that came.
const past = [];
let before = null;

const info = computed(() => topics.value.overview || {});

// The numbers in a line such as `granted=5,refused=2`.
function parts(line) {
  const found = {};
  for (const part of (line || "").split(",")) {
    const [name, value] = part.split("=");
    if (value !== undefined) found[name] = Number(value);
  }
  return found;
}

const families = ["lock", "gate", "stock", "limit"];

function sum(fields, name) {
  return families.reduce((all, family) => all + (parts(fields["coordination_" + family])[name] || 0), 0);
}

effect(() => {
  const fields = info.value;
  if (!fields.total_commands_processed) {
    before = null;
    return;
  }
  // What is old is no new figure.
  if (fields["no-reply"]) return;
  const at = {
    at: now.peek(),
    // Without the questions of this page and others.
    commands: Number(fields.total_commands_processed) - Number(fields["console-calls"] || 0),
    refused: sum(fields, "refused"),
    lapsed: sum(fields, "lapsed"),
    dead: parts(fields.coordination_queue).dead_letters || 0,
    rejected: Number(fields.rejected_connections),
    evicted: Number(fields.evicted_keys),
  };
  const gap = before ? (at.at - before.at) / 1000 : 0;
  if (before && (gap < 0.2 || at.commands < before.commands)) {
    before = at.commands < before.commands ? at : before;
    return;
  }
  const rate = (name) => (before && gap < 5 ? Math.max(0, (at[name] - before[name]) / gap) : null);
  past.push({
    ...at,
    ops: rate("commands"),
    refusals: rate("refused"),
    p99: fields["p99-us"] ?? null,
    sync: fields.log_slowest_sync_usec ? Number(fields.log_slowest_sync_usec) : null,
    waiting: sum(fields, "waiting"),
  });
  before = at;
  if (past.length > SPAN) past.shift();
});

const last = () => past[past.length - 1] || {};

// How much a counter has grown in the last minute.
function grown(name) {
  const from = past.find((point) => point.at > now.value - 60000);
  return from ? last()[name] - from[name] : 0;
}

// What is wrong, the worst first: [how bad, text, address, button].
function worries() {
  const fields = info.value;
  const said = tick.value || {};
  const list = [];
  const add = (level, name, values, more = {}) => list.push({ level, text: t("worry." + name, values), ...more });
  if (said.state === "busy") {
    add("bad", "busy", { time: duration(said["running-ms"]) }, { verb: t("worry.busy.end"), act: endScript });
  }
  if (said.state === "loading") add("warn", "loading", { share: fields.loading_loaded_perc || "–" });
  if (fields["no-reply"] && said.state !== "busy") add("bad", "no-reply", { text: fields["no-reply"] });
  if (fields["refused-info"]) add("warn", "no-info", { text: fields["refused-info"] });
  if (fields.log_state === "failed") add("bad", "log-failed", {});
  if (fields.log_state === "full") add("bad", "log-full", {});
  if (fields.group_voters !== undefined) {
    if (fields.role === "slave" && fields.master_link_status !== "up") add("bad", "no-leader", {});
    if (fields.role === "master") {
      const missing = Number(fields.group_voters_missing);
      if (missing > 0) add("warn", "node-missing", { n: missing });
    }
    const lag = Number(fields.slave_lag_ms);
    if (fields.role === "slave" && lag > 2000) add("warn", "lag", { time: duration(lag) });
  }
  const used = Number(fields.used_memory);
  const limit = Number(fields.maxmemory);
  if (limit > 0 && used > 0.9 * limit) add("warn", "memory", { share: number((100 * used) / limit) });
  const clients = Number(fields.connected_clients);
  if (clients > 0.9 * Number(fields.maxclients)) add("warn", "clients", { n: number(clients), most: number(fields.maxclients) });
  if (grown("rejected") > 0) add("warn", "rejected", { n: number(grown("rejected")) });
  if (grown("evicted") > 0) add("warn", "evicted", { n: number(grown("evicted")) });
  if (Number(fields.log_slowest_sync_usec) > 100000) add("warn", "slow-sync", { time: micros(Number(fields.log_slowest_sync_usec)) });
  if (fields.rdb_last_bgsave_status === "err") add("warn", "save-failed", {});
  if (fields.aof_last_bgrewrite_status === "err") add("warn", "rewrite-failed", {});
  if (grown("dead") > 0) add("warn", "dead", { n: number(grown("dead")) }, { address: href("queues") });
  if (grown("lapsed") > 0) add("warn", "lapsed", { n: number(grown("lapsed")) }, { address: href("events", { event: "lapsed" }) });
  if (grown("refused") > 100) add("note", "refused", { n: number(grown("refused")) }, { address: href("events", { event: "refused" }) });
  if (["snapshots", "none"].includes(fields.durability)) add("note", "in-memory", {});
  const order = ["bad", "warn", "note"];
  return list.sort((a, b) => order.indexOf(a.level) - order.indexOf(b.level));
}

// Asks whether to end what runs. Of a function the server says the name; of a script only its log does.
async function endScript() {
  let name;
  try {
    const [stats] = await run([["FUNCTION", "STATS"]]);
    name = stats instanceof Failure ? undefined : stats.running_script && stats.running_script.name;
  } catch (error) {
    notify(reason(error), true);
    return;
  }
  ask({
    title: t("script.kill.title"),
    body: html`<p>${name ? html`<${Key} of=${name} />` : t("script.kill.name")}</p><p>${t("script.kill.body")}</p>`,
    verb: t("script.kill.verb"),
    isBad: true,
    act: async () => {
      await kill();
      notify(t("script.kill.done"));
    },
  });
}

// SCRIPT KILL does not end a function: its error names the command that does.
async function kill() {
  const [said] = await run([["SCRIPT", "KILL"]]);
  if (said instanceof Failure && said.text.includes("FUNCTION KILL")) await call(["FUNCTION", "KILL"]);
  else if (said instanceof Failure) throw said;
}

function Worries() {
  const list = worries();
  const known = info.value.redis_version !== undefined;
  return html`<${Panel} title=${t("overview.wrong")}>
    ${!list.length && link.value === "lost"
      ? html`<p class="empty">${t("overview.unknown")}</p>`
      : !list.length && !known
        ? html`<p class="empty">${t("loading")}</p>`
        : !list.length
          ? html`<p class="empty good">${t("overview.nothing")}</p>`
          : html`<ul class="worries">${list.map(
            (worry) => html`<li class=${worry.level === "note" ? "muted" : worry.level}>
              <span aria-hidden="true"></span>
              <span class="text">${worry.text}</span>
              ${worry.address && html`<a href=${worry.address}>${t("show")}</a>`}
              ${worry.act && html`<button class="is-bad" onClick=${worry.act}>${worry.verb}</button>`}
            </li>`,
          )}</ul>`}
  <//>`;
}

function Durable() {
  const fields = info.value;
  const kind = fields.durability;
  return html`<${Panel} title=${t("overview.durable")}>
    <div class="body">
      <p class=${["snapshots", "none", "no"].includes(kind) ? "warn" : "good"}>${kind ? t("durable." + kind) : "–"}</p>
      <div class="gap"></div>
      <${Facts} of=${[
        fields.log_durable_lsn && [t("fact.lsn"), `${number(fields.log_durable_lsn)} / ${number(fields.log_last_lsn)}`],
        fields.log_slowest_sync_usec && [t("fact.sync"), micros(Number(fields.log_slowest_sync_usec))],
        fields.aof_current_size && [t("fact.journal"), bytes(fields.aof_current_size)],
        fields.rdb_last_save_time && [t("fact.saved"), Number(fields.rdb_last_save_time) ? clock(fields.rdb_last_save_time * 1000) : t("never")],
      ]} />
    </div>
  <//>`;
}

function Group() {
  const fields = info.value;
  if (fields.group_voters === undefined) {
    const text = fields.redis_version ? t("group.single") : "–";
    return html`<${Panel} title=${t("overview.group")}><div class="body"><p>${text}</p></div><//>`;
  }
  const followers = [];
  for (let at = 0; fields["slave" + at]; at += 1) {
    const follower = Object.fromEntries(fields["slave" + at].split(",").map((part) => part.split("=")));
    const behind = Number(fields.master_repl_offset) - Number(follower.offset);
    followers.push(html`<li>${follower.ip}:${follower.port} · ${t("group.behind", { n: number(Math.max(0, behind)) })}</li>`);
  }
  const leads = fields.role === "master";
  return html`<${Panel} title=${t("overview.group")}>
    <div class="body">
      <p class=${leads || fields.master_link_status === "up" ? "good" : "bad"}>
        ${leads ? t("group.leads") : fields.master_link_status === "up" ? t("group.follows", { leader: fields.master_host + ":" + fields.master_port }) : t("group.lost")}
      </p>
      <div class="gap"></div>
      <${Facts} of=${[
        [t("fact.node"), fields.node_id],
        [t("fact.voters"), fields.group_voters],
        fields.group_learners && [t("fact.learners"), fields.group_learners],
        [t("fact.term"), number(fields.group_term)],
        !leads && [t("fact.lag"), duration(Number(fields.slave_lag_ms))],
      ]} />
      ${followers.length > 0 && html`<div class="gap"></div><ul>${followers}</ul>`}
    </div>
  <//>`;
}

function Families() {
  const fields = info.value;
  const rows = families.map((family) => ({ family, ...parts(fields["coordination_" + family]) }));
  const cell = (row, name) => (row[name] === undefined ? "" : number(row[name]));
  const names = ["granted", "refused", "waiting", "released", "lapsed", "broken", "sold"];
  return html`<${Panel} title=${t("overview.families")}>
    <div class="scroll" tabindex="0" role="region" aria-label=${t("overview.families")}><table>
      <thead><tr><td></td>${names.map((name) => html`<th scope="col" class="num">${t("family." + name)}</th>`)}</tr></thead>
      <tbody>${rows.map((row) => html`<tr><th scope="row">${t("family." + row.family)}</th>${names.map((name) => html`<td class="num">${cell(row, name)}</td>`)}</tr>`)}</tbody>
    </table></div>
  <//>`;
}

export function Screen() {
  const fields = info.value;
  const point = last();
  const series = (name) => past.map((one) => one[name]);
  const keys = Object.keys(fields).filter((name) => /^db\d+$/.test(name)).reduce((all, name) => all + (parts(fields[name]).keys || 0), 0);
  return html`
    <header><h1>${t("nav.overview")}</h1><span class="muted">${fields.tidegate_version ? t("overview.version", { version: fields.tidegate_version, time: duration(Number(fields.uptime_in_seconds) * 1000) }) : ""}</span></header>
    <${Worries} />
    <div class="charts">
      <${Chart} name=${t("chart.ops")} value=${short(point.ops)} unit=${t("per-second")} points=${series("ops")} />
      <${Chart} name=${t("chart.p99")} value=${fields["refused-latency"] ? "–" : micros(point.p99)} unit="" points=${series("p99")} format=${micros} note=${fields["refused-latency"] && t("denied.short")} />
      <${Chart} name=${t("chart.sync")} value=${micros(point.sync)} unit="" points=${series("sync")} format=${micros} note=${["snapshots", "none"].includes(fields.durability) ? t("chart.no-journal") : ""} />
      <${Chart} name=${t("chart.refusals")} value=${short(point.refusals)} unit=${t("per-second")} points=${series("refusals")} />
      <${Chart} name=${t("chart.waiting")} value=${number(point.waiting)} unit="" points=${series("waiting")} format=${number} />
    </div>
    <div class="columns">
      <${Durable} />
      <${Group} />
      <${Panel} title=${t("overview.server")}>
        <div class="body"><${Facts} of=${[
          [t("fact.keys"), fields.redis_version ? number(keys) : "–"],
          [t("fact.memory"), Number(fields.maxmemory) ? `${bytes(fields.used_memory)} / ${bytes(fields.maxmemory)}` : bytes(fields.used_memory)],
          [t("fact.resident"), bytes(fields.used_memory_rss)],
          [t("fact.clients"), `${number(fields.connected_clients)} / ${short(Number(fields.maxclients))}`],
          [t("fact.blocked"), number(fields.blocked_clients)],
          [t("fact.traffic"), `${short(Number(fields.instantaneous_input_kbps))} / ${short(Number(fields.instantaneous_output_kbps))} KiB/s`],
        ]} /></div>
      <//>
    </div>
    <${Families} />
  `;
}
