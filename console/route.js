// The address: which screen is shown, and its filters. A link to what one sees can be sent to somebody else.

import { signal } from "./vendor/signals-core.module.js";
import { session } from "./api.js";

export const SCREENS = [
  "overview",
  "locks",
  "stocks",
  "limits",
  "queues",
  "once",
  "events",
  "scripts",
  "clients",
  "keys",
  "command",
];

function read() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { screen: SCREENS.includes(path) ? path : SCREENS[0], params: new URLSearchParams(query || "") };
}

export const route = signal(read());
addEventListener("hashchange", () => (route.value = read()));

// The address of a screen. Parameters that are empty are left out.
export function href(screen, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined && value !== null && value !== "") query.set(name, value);
  }
  const text = query.toString();
  return "#/" + screen + (text ? "?" + text : "");
}

// The parameters of this screen, with changes.
export function withParams(changes) {
  return href(route.value.screen, { ...Object.fromEntries(route.value.params), ...changes });
}

// The id of the chosen key; null for none.
export const chosen = () => route.value.params.get("key");

// The database whose keys are shown. Whatever is no number means the first one.
export function database() {
  const text = route.value.params.get("db") || "";
  return /^\d{1,9}$/.test(text) ? Number(text) : 0;
}

// Whether somebody who is signed in is shown this screen.
export const isShown = (screen) => Boolean(session.value) && route.value.screen === screen;

// Names the chosen key of a screen among those of all databases; null for none, and when the screen is left.
export const place = (screen) => (isShown(screen) && chosen() ? database() + " " + chosen() : null);

export function go(address) {
  location.hash = address;
}

// Changes parameters without a step in the history, as for each letter of a filter.
export function adjust(changes) {
  history.replaceState(null, "", withParams(changes));
  route.value = read();
}
