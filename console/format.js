// Numbers, times and sizes as people read them.

import { language, t } from "./lang.js";

const LOCALES = { en: "en", zh: "zh-CN" };

export function number(value, digits = 0) {
  if (value === undefined || value === null || Number.isNaN(Number(value))) return "–";
  return new Intl.NumberFormat(LOCALES[language.value], { maximumFractionDigits: digits }).format(Number(value));
}

// A number in few characters: 12.3k.
export function short(value) {
  if (value === undefined || value === null || Number.isNaN(Number(value))) return "–";
  const steps = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  const [unit, sign] = steps.find(([unit]) => Math.abs(value) >= unit) || [1, ""];
  const scaled = value / unit;
  return number(scaled, Math.abs(scaled) < 10 && (unit > 1 || !Number.isInteger(scaled)) ? 1 : 0) + sign;
}

// A part of a whole, in percent.
export function percent(value) {
  if (value === undefined || value === null || Number.isNaN(value)) return "–";
  return number(value * 100, value < 0.1 ? 1 : 0) + "%";
}

export function bytes(value) {
  if (value === undefined || value === null || Number.isNaN(Number(value))) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  let scaled = Number(value);
  while (scaled >= 1024 && at < units.length - 1) {
    scaled /= 1024;
    at += 1;
  }
  return number(scaled, at > 0 && scaled < 100 ? 1 : 0) + " " + units[at];
}

const seconds = (count) => count + " " + t("unit.second");

// A duration in one unit or two: 250 ms, 4.2 s, 3 min 20 s, 2 h 5 min.
export function duration(ms) {
  if (ms === undefined || ms === null || Number.isNaN(Number(ms))) return "–";
  if (ms < 0) return seconds(0);
  if (ms < 1000) return number(ms) + " " + t("unit.ms");
  const whole = ms / 1000;
  if (whole < 10) return number(whole, 1) + " " + t("unit.second");
  if (whole < 60) return seconds(Math.floor(whole));
  const steps = [[86400, t("unit.day")], [3600, t("unit.hour")], [60, t("unit.minute")], [1, t("unit.second")]];
  const at = steps.findIndex(([unit]) => whole >= unit);
  const [unit, name] = steps[at];
  const first = Math.floor(whole / unit) + " " + name;
  const [below, belowName] = steps[at + 1];
  const rest = Math.floor((whole % unit) / below);
  return rest ? first + " " + rest + " " + belowName : first;
}

// Whole seconds, for what counts down.
export function countdown(ms) {
  return ms < 60000 ? seconds(Math.max(0, Math.ceil(ms / 1000))) : duration(ms);
}

export function micros(us) {
  if (us === null || us === undefined) return "–";
  return us < 1000 ? number(us) + " " + t("unit.micro") : duration(us / 1000);
}

// A time of the clock, with the day and the year where they are not those of today.
export function clock(ms) {
  const date = new Date(Number(ms));
  const today = new Date();
  const time = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
  const day = date.toDateString() === today.toDateString() ? {} : { month: "short", day: "numeric" };
  const year = date.getFullYear() === today.getFullYear() ? {} : { year: "numeric" };
  return new Intl.DateTimeFormat(LOCALES[language.value], { ...time, ...day, ...year }).format(date);
}
