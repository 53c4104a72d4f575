// The page: signing in, the frame, and the screen that the address names.

import { effect, signal } from "./vendor/signals-core.module.js";
import { Component, render } from "./vendor/preact.module.js";
import { askSession, session, signIn, signOut } from "./api.js";
import { html } from "./html.js";
import { language, remember, remembered, t, theme } from "./lang.js";
import { link, refusal, tick, topics, wanted } from "./live.js";
import { ask, Dialog, Notices, notify, reason } from "./parts.js";
import { go, href, route, SCREENS } from "./route.js";
import * as clients from "./screens/clients.js";
import * as command from "./screens/command.js";
import * as events from "./screens/events.js";
import * as keys from "./screens/keys.js";
import * as limits from "./screens/limits.js";
import * as locks from "./screens/locks.js";
import * as once from "./screens/once.js";
import * as overview from "./screens/overview.js";
import * as queues from "./screens/queues.js";
import * as scripts from "./screens/scripts.js";
import * as stocks from "./screens/stocks.js";

const screens = { overview, locks, stocks, limits, queues, once, events, scripts, clients, keys, command };

// Keys that lead to screens, after a g.
const LETTERS = { o: "overview", l: "locks", s: "stocks", r: "limits", q: "queues", i: "once", e: "events", p: "scripts", c: "clients", k: "keys", t: "command" };

effect(() => {
  wanted.value = session.value ? (screens[route.value.screen].query || (() => ""))() : null;
});

effect(() => {
  document.documentElement.lang = language.value === "zh" ? "zh-CN" : "en";
  document.documentElement.dataset.theme = theme.value;
});

const said = signal("");
const isSigningIn = signal(false);

async function trySignIn(event) {
  event.preventDefault();
  const { user, password } = Object.fromEntries(new FormData(event.target));
  isSigningIn.value = true;
  said.value = "";
  try {
    await signIn(user, password);
  } catch (error) {
    said.value = reason(error);
  }
  isSigningIn.value = false;
}

// The icon lies beside this module, at an address that names the version.
const ICON = new URL("icon.svg", import.meta.url).pathname;

function Brand() {
  return html`<a class="brand" href=${href("overview")}><img src=${ICON} alt="" />Tidegate</a>`;
}

function Languages() {
  const other = language.value === "zh" ? "en" : "zh";
  const choose = () => {
    language.value = other;
    remember("language", other);
  };
  return html`<button class="is-quiet" type="button" lang=${other === "zh" ? "zh-CN" : "en"} onClick=${choose}>${other === "zh" ? "中文" : "English"}</button>`;
}

function Themes() {
  const order = ["", "light", "dark"];
  const choose = () => {
    theme.value = order[(order.indexOf(theme.value) + 1) % order.length];
    remember("theme", theme.value);
  };
  const name = t("theme." + (theme.value || "auto"));
  return html`<button class="is-quiet" type="button" aria-label=${t("theme.name", { name })} onClick=${choose}>${name}</button>`;
}

function SignIn() {
  return html`<main class="sign-in"><form onSubmit=${trySignIn}>
    <h1 class="brand"><img src=${ICON} alt="" />Tidegate</h1>
    <label><span>${t("sign-in.user")}</span><input name="user" autocomplete="username" autocapitalize="none" spellcheck=${false} placeholder="default" autofocus /></label>
    <label><span>${t("sign-in.password")}</span><input name="password" type="password" autocomplete="current-password" /></label>
    <p class="said" role="alert">${said.value}</p>
    <button class="is-main" disabled=${isSigningIn.value}>${t("sign-in.verb")}</button>
    <p class="muted">${t("sign-in.hint")}</p>
    <div class="foot"><${Themes} /><${Languages} /></div>
  </form></main>`;
}

function State() {
  const state = tick.value && link.value !== "lost" ? tick.value.state : "unknown";
  const how = { ready: "good", following: "good", unknown: "muted", loading: "warn" }[state] || "bad";
  return html`<span class=${"pill " + how} role="status">${t("state." + state)}</span>`;
}

function Bar() {
  return html`<header class="bar">
    <${Brand} />
    <${State} />
    <span class="space"></span>
    <span class="who" title=${session.value.user}>${session.value.user}</span>
    <button class="is-quiet with-keys" onClick=${help}>${t("help.title")}</button>
    <${Themes} />
    <${Languages} />
    <button class="is-quiet" onClick=${() => signOut().catch((error) => notify(reason(error), true))}>${t("sign-out")}</button>
  </header>`;
}

function Nav() {
  return html`<nav class="nav" aria-label=${t("nav.label")}><ul>${SCREENS.map(
    (name) => html`<li><a href=${href(name)} aria-current=${name === route.value.screen ? "page" : undefined}>${t("nav." + name)}</a></li>`,
  )}</ul></nav>`;
}

function Banner() {
  if (link.value === "lost") {
    const text = refusal.value ? t("banner.refused", { text: reason(refusal.value) }) : t("banner.lost");
    return html`<div class="banner" role="alert">${text}</div>`;
  }
  if (tick.value && tick.value.state === "busy" && route.value.screen !== "overview") {
    return html`<div class="banner" role="alert">${t("banner.busy")} <a href=${href("overview")}>${t("show")}</a></div>`;
  }
  const isShown = (name) => new RegExp(`(^|&)${name}(=|&|$)`).test(wanted.value || "");
  const stale = Object.entries(topics.value).find(([name, topic]) => topic["no-reply"] && isShown(name));
  if (stale && route.value.screen !== "overview") {
    return html`<div class="banner" role="alert">${t("banner.stale", { text: stale[1]["no-reply"] })}</div>`;
  }
  return null;
}

// A screen. A mistake in drawing it must not stop the page.
class Shown extends Component {
  static getDerivedStateFromError(error) {
    console.error(error);
    return { error };
  }

  render({ of: Screen }, { error }) {
    if (!error) return html`<${Screen} />`;
    return html`<div class="panel" role="alert"><p class="empty bad">${t("broken", { text: String(error) })}</p>
      <p class="empty"><button onClick=${() => location.reload()}>${t("broken.reload")}</button></p></div>`;
  }
}

// Leads past the navigation. The address is taken by the screens, so it is no link that a browser follows.
function Skip() {
  const skip = (event) => {
    event.preventDefault();
    document.getElementById("main").focus();
  };
  return html`<a class="skip" href="#main" onClick=${skip}>${t("skip")}</a>`;
}

function App() {
  if (session.value === undefined) return null;
  if (session.value === null) return html`<${SignIn} /><${Notices} />`;
  const { Screen } = screens[route.value.screen];
  document.title = `${t("nav." + route.value.screen)} · Tidegate`;
  return html`<div class="frame">
      <${Skip} />
      <${Bar} />
      <${Nav} />
      <main class="main" id="main" tabindex="-1"><${Banner} /><${Shown} key=${route.value.screen} of=${Screen} /></main>
    </div>
    <${Dialog} /><${Notices} />`;
}

const root = document.getElementById("root");
effect(() => {
  // Drawn at once, so that the effect learns what the page depends on.
  render(html`<${App} />`, root);
});

// Whether single keys do something. Who dictates, or rests a hand on the keyboard, can switch them off.
let hasKeys = remembered("keys", ["off"]) !== "off";

function help() {
  const choose = (event) => {
    hasKeys = event.target.checked;
    remember("keys", hasKeys ? "on" : "off");
  };
  ask({
    title: t("help.title"),
    body: html`<table><tbody>
        <tr><td><kbd>/</kbd></td><td>${t("help.search")}</td></tr>
        <tr><td><kbd>?</kbd></td><td>${t("help.keys")}</td></tr>
        ${Object.entries(LETTERS).map(([letter, name]) => html`<tr><td><kbd>g</kbd> <kbd>${letter}</kbd></td><td>${t("nav." + name)}</td></tr>`)}
      </tbody></table>
      <label class="check"><input type="checkbox" defaultChecked=${hasKeys} onChange=${choose} /><span>${t("help.use")}</span></label>`,
    verb: t("close"),
    isTold: true,
    act: async () => {},
  });
}

let isGoing = false;
addEventListener("keydown", (event) => {
  if (!session.value || !hasKeys || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input,textarea,select,dialog")) return;
  if (isGoing && LETTERS[event.key]) go(href(LETTERS[event.key]));
  isGoing = event.key === "g";
  if (event.key === "/") {
    const field = document.querySelector("[data-search]");
    if (field) {
      event.preventDefault();
      field.focus();
      field.select();
    }
  }
  if (event.key === "?") help();
});

// Nothing of what was shown stays when nobody is signed in.
effect(() => {
  if (!session.value) topics.value = {};
});

askSession().then(
  () => session.value === undefined && (session.value = null),
  (error) => {
    session.value = null;
    said.value = reason(error);
  },
);
