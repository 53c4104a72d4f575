// Requests to the server. Every call of the page is a command, run as the user who is signed in.

import { signal } from "./vendor/signals-core.module.js";

// Who is signed in: undefined until the server has said so, null for nobody.
export const session = signal(undefined);

// An error that a command replied with.
export class Failure {
  constructor(text) {
    this.text = text;
  }

  toString() {
    return this.text;
  }

  get isDenied() {
    return this.text.startsWith("NOPERM");
  }
}

// A string that is no text: { hex }, or a text that was cut: { cut, bytes }.
// Both come from the server as they are, and go back as they are.

// Makes a reply what programs expect: maps are objects, errors are Failures, and a status is a text.
export function plain(value) {
  if (Array.isArray(value)) return value.map(plain);
  if (value === null || typeof value !== "object") return value;
  if ("map" in value) {
    const object = {};
    for (let at = 0; at < value.map.length; at += 2) {
      object[asText(value.map[at])] = plain(value.map[at + 1]);
    }
    return object;
  }
  if ("error" in value) return new Failure(value.error);
  if ("status" in value) return value.status;
  if ("number" in value) return value.number;
  return value;
}

// The text of a string for people: bytes that are no text, and invisible characters, are shown by their numbers.
export function asText(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "object") {
    if ("hex" in value) return value.hex.replace(/../g, (byte) => (/[2-7]./.test(byte) && !/7f|5c/.test(byte) ? String.fromCharCode(parseInt(byte, 16)) : "\\x" + byte));
    if ("cut" in value) return asText(value.cut) + "…";
  }
  return String(value).replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g, (c) =>
    c === "\n" ? "\\n" : c === "\r" ? "\\r" : c === "\t" ? "\\t" : "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
}

// A key as a part of an address, and back. A key that was cut has none: it can be shown, and not asked for.
export function keyId(key) {
  if (typeof key !== "object") return "t:" + key;
  return "hex" in key ? "x:" + key.hex : "";
}

export function keyOf(id) {
  return id.startsWith("x:") ? { hex: id.slice(2) } : id.slice(2);
}

// A request that was not answered as it should.
export class Refused extends Error {
  constructor(code, text, status) {
    super(text);
    this.code = code;
    this.status = status;
  }

  get isDenied() {
    return this.message.startsWith("NOPERM");
  }
}

// The session is over. The page begins anew, so nothing of what it knew stays for the next reader.
let isLeaving = false;

function over() {
  if (!session.peek()) {
    session.value = null;
  } else if (!isLeaving) {
    isLeaving = true;
    location.reload();
  }
}

async function request(path, body) {
  const headers = { "content-type": "application/json" };
  if (session.value) headers["x-tidegate-token"] = session.value.token;
  const options = body === undefined ? {} : { method: "POST", headers, body: JSON.stringify(body) };
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", cache: "no-store", ...options });
  } catch {
    throw new Refused("unreachable", "", 0);
  }
  const said = await response.json().catch(() => ({}));
  if (response.ok) return said;
  // The token is another one after a sign-in in another window.
  if (["signed-out", "token"].includes(said.refused)) over();
  throw new Refused(said.refused || "failed", said.text || response.statusText, response.status);
}

// Runs calls, each an array of words, and returns their replies as they are sent.
export async function runAsIs(calls, db = 0) {
  return (await request("api/command", { db, calls })).replies;
}

// Runs calls, and returns their replies as programs expect them.
export async function run(calls, db = 0) {
  return calls.length ? (await runAsIs(calls, db)).map(plain) : [];
}

// Runs calls that ask for `count` elements, or for half as many as often as the replies are too long. Returns the
// replies, and the count that was asked for at last.
export async function runFitting(callsOf, count, db = 0) {
  for (;;) {
    try {
      return [await run(callsOf(count), db), count];
    } catch (error) {
      if (error.code !== "too-long" || count === 1) throw error;
      count = Math.floor(count / 2);
    }
  }
}

// Runs one call. An error of the command is thrown.
export async function call(words, db = 0) {
  const [reply] = await run([words], db);
  if (reply instanceof Failure) throw new Refused("command", reply.text, 200);
  return reply;
}

// Finds clients of the server by a text: so many from a number on.
export function findClients(find, from, count) {
  return request("api/clients", { find, from, count });
}

export async function askSession() {
  try {
    const said = await request("api/session");
    if (session.peek() && session.peek().user !== said.user) over();
    else session.value = said;
  } catch (error) {
    if (error.status !== 401) throw error;
  }
}

// Why there is no stream of this state, which a browser does not say; null if there is one by now.
export async function askStream(query) {
  const asking = new AbortController();
  try {
    const response = await fetch("api/stream?" + query, { credentials: "same-origin", cache: "no-store", signal: asking.signal });
    if (response.ok) return null;
    const said = await response.json();
    return new Refused(said.refused, said.text, response.status);
  } catch {
    return new Refused("unreachable", "", 0);
  } finally {
    asking.abort();
  }
}

export async function signIn(user, password) {
  session.value = await request("api/sign-in", { user, password });
}

export async function signOut() {
  await request("api/sign-out", {});
  over();
}
