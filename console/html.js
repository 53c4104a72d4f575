// Templates. A value between the tags is text and never markup: what a client wrote into a key or a note stays text.

import { h } from "./vendor/preact.module.js";
import htm from "./vendor/htm.module.js";

export const html = htm.bind(h);
