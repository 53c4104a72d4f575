// Texts in the language of the reader.

import { signal } from "./vendor/signals-core.module.js";
import en from "./lang/en.js";
import zh from "./lang/zh.js";

const TEXTS = { en, zh };

function remembered(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

// Keeps a choice for the next visit, where the browser allows it.
export function remember(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // It is a choice for this visit, then.
  }
}

export const language = signal(remembered("language") || (navigator.language.startsWith("zh") ? "zh" : "en"));
export const theme = signal(remembered("theme") || "");

// The text of this name. Words in braces are replaced by values.
export function t(name, values = {}) {
  const text = TEXTS[language.value][name];
  if (text === undefined) return name;
  return text.replace(/\{(\w+)\}/g, (_, word) => (word in values ? values[word] : "{" + word + "}"));
}

// Whether there is a text of this name.
export function knows(name) {
  return name in TEXTS.en;
}
