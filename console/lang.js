// Texts in the language of the reader.

import { signal } from "./vendor/signals-core.module.js";
import en from "./lang/en.js";
import zh from "./lang/zh.js";

const TEXTS = { en, zh };

// Other programs at this address may keep something, too.
const PREFIX = "tidegate.";

// A choice of an earlier visit, if it is one of these.
export function remembered(name, choices) {
  try {
    const choice = localStorage.getItem(PREFIX + name);
    return choices.includes(choice) ? choice : null;
  } catch {
    return null;
  }
}

// Keeps a choice for the next visit, where the browser allows it.
export function remember(name, value) {
  try {
    localStorage.setItem(PREFIX + name, value);
  } catch {
    // It is a choice for this visit, then.
  }
}

export const language = signal(remembered("language", Object.keys(TEXTS)) || (navigator.language.startsWith("zh") ? "zh" : "en"));
export const theme = signal(remembered("theme", ["light", "dark"]) || "");

// The text of this name. A word in braces is replaced by its value: `{n}`, or by one of two texts: `{n|is|are}`.
export function t(name, values = {}) {
  const text = TEXTS[language.value][name];
  if (text === undefined) return name;
  return text.replace(/\{(\w+)(?:\|([^|}]*)\|([^|}]*))?\}/g, (hole, word, one, more) => {
    if (!(word in values)) return hole;
    return one === undefined ? values[word] : String(values[word]) === "1" ? one : more;
  });
}

// Whether there is a text of this name.
export function knows(name) {
  return name in TEXTS.en;
}
