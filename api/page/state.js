// What is shown, kept in the address, so that a link shares the view and back and forward work.
// The parameters of a query are called as in the API.

import { preceding } from "./base/times.js";

export const DEFAULTS = Object.freeze({
  view: "profile", // profile | compare | requests
  profile_type: "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
  selector: "{}",
  start: "now-15m",
  end: "now",
  refresh: "", // seconds between refreshes, "": off
  baseline_selector: "", // "": the same selector
  baseline_start: "", // "": the period just before
  baseline_end: "",
  absolute: "", // "true": compare values as they are, not scaled to the same total
  trace: "", // the request that is open
  search: "",
  regex: "",
  at: "", // path hash of the frame zoomed to
  sort: "", // column of the table of functions, "-" in front: ascending; "": what the view is about
  colours: "", // "blue-orange" in comparisons
});

/** The state of one page. `subscribe(listener)`: the listener gets the new values and the set of changed names. */
export class PageState {
  #listeners = [];

  constructor() {
    this.values = read(location.search);
    window.addEventListener("popstate", () => this.#become(read(location.search)));
  }

  subscribe(listener) {
    this.#listeners.push(listener);
  }

  /** Changes some values. `replace`: no new entry in the history (typing, refining). */
  update(changes, { replace = false } = {}) {
    const next = { ...this.values, ...changes };
    const address = location.pathname + write(next);
    if (address !== location.pathname + location.search) {
      history[replace ? "replaceState" : "pushState"](null, "", address);
    }
    this.#become(next);
  }

  #become(next) {
    const changed = new Set(Object.keys(DEFAULTS).filter((name) => next[name] !== this.values[name]));
    this.values = next;
    if (changed.size) for (const listener of this.#listeners) listener(next, changed);
  }
}

/** Values of a query string; what is missing has its default, what is unknown is dropped. */
export function read(query) {
  const given = new URLSearchParams(query);
  return Object.fromEntries(Object.entries(DEFAULTS).map(([name, value]) => [name, given.get(name) ?? value]));
}

/** The query string of values: only what differs from the defaults. */
export function write(values) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(DEFAULTS)) if (values[name] !== value) query.set(name, values[name]);
  const text = query.toString();
  return text ? "?" + text : "";
}

/** The other side of a comparison as {selector, start, end}: by default the same series in the period just before. */
export function baselineOf(values) {
  const chosen = values.baseline_start && values.baseline_end;
  const [start, end] = chosen ? [values.baseline_start, values.baseline_end] : preceding(values.start, values.end);
  return { selector: values.baseline_selector || values.selector, start, end };
}
