// What may be wrong with a selector that selects nothing: the same in all views.

import * as api from "./api.js";
import { byId } from "./base/dom.js";

const MATCHER = /([A-Za-z_][\w.-]*)\s*(=~|!=|!~|=)\s*"((?:[^"\\]|\\.)*)"/g;
const OF_REQUESTS = ["operation", "span_name", "span_id"];
const SHOWN = 8;

/** Says which label or value of the selector does not occur, and which ones do; hides it where `isEmpty` is false. */
export async function showSelectorHelp(values, isEmpty, signal) {
  const place = byId("selector-help");
  place.hidden = true;
  if (!isEmpty || values.selector === "{}") return;
  const everything = { selector: "{}", start: values.start, end: values.end };
  try {
    const { entries: labels } = await api.labelNames(everything);
    for (const [, label, operator, value] of values.selector.matchAll(MATCHER)) {
      if (OF_REQUESTS.includes(label)) continue;
      const isLabel = labels.includes(label);
      const { entries } = isLabel ? await api.labelValues(label, everything, "") : { entries: labels };
      if (signal.aborted) return;
      if (isLabel && (operator !== "=" || entries.includes(value) || !entries.length)) continue;
      const what = isLabel ? `No ${label} is called ${value} in this time range.` : `No samples in this time range have a label ${label}.`;
      place.textContent = `${what} There ${entries.length === 1 ? "is" : "are"}: ${entries.slice(0, SHOWN).join(", ")}${entries.length > SHOWN ? "…" : ""}`;
      place.hidden = !entries.length;
      return;
    }
  } catch {
    // The view shows the error.
  }
}
