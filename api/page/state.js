// The state of the page, kept in its address: so links share a view, and the buttons Back and Forward work.
// Parameters of queries have the API's names.

import { preceding } from "./base/times.js";

export const DEFAULTS = Object.freeze({
  view: "services", // one of VIEWS
  label: "service", // whose values the view of services lists
  profile_type: "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
  selector: "{}",
  start: "now-15m",
  end: "now",
  refresh: "", // seconds between refreshes, "": off
  baseline_selector: "", // "": as selector
  baseline_start: "", // "": the time range just before, or for another selector the same one
  baseline_end: "",
  among: "", // the rows that were ticked to be compared: JSON of [[name, selector]]
  absolute: "", // "true": compare values as they are; "": scale both sides to the same total
  trace: "", // the request that is open
  measure: "", // what percentiles and slow requests are about. "cpu": CPU; "": duration
  split: "", // a label by which operations are split
  listed: "", // order of requests: duration | start; "": CPU
  status: "", // "error": only requests with an error
  cell: "", // of the map of requests: measure:least:below:start:end, in ns and Unix ms
  against: "", // "true": graph of the cell's requests against the others
  order: "", // of operations, as the API's; "": thread CPU
  focus: "", // regular expressions on functions, modules and files
  ignore: "",
  hide: "",
  frames: "auto", // own | all | auto: own if interpreters run most of it
  by: "function", // function | line | file | module | address
  invert: "", // "true": from the innermost frames
  group_by: "", // a label whose values are the first frames
  function: "", // the function of the sandwich; "": no sandwich
  module: null, // its module and file; "": it has none; null: any
  file: null,
  chains: "", // "all": draws each frame, also if it calls only one other
  search: "",
  regex: "",
  at: "", // path ID of the zoomed frame
  only: "", // new | gone: functions of a comparison that are on one side only
  table: "", // "calls": the call tree beside the graph; "": its functions
  sort: "", // column of the table of functions; with "-" in front ascending; "": the view's default
  colours: "", // "blue-orange" in comparisons
});

/** The zoom and the function of the sandwich, emptied: other stacks or frames may not have them. */
export const NOWHERE = Object.freeze({ at: "", function: "", module: null, file: null });

const VIEWS = ["services", "operations", "slow", "profile", "compare", "requests"];

/** The state of one page. A listener gets the new values, and the set of changed names. */
export class PageState {
  #listeners = [];

  constructor() {
    this.values = read(location.search);
    window.addEventListener("popstate", () => this.#become(read(location.search)));
  }

  subscribe(listener) {
    this.#listeners.push(listener);
  }

  /** Changes some values. With `replace`, the browser's history gets no new entry. */
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

/** Parameters that say which profile to show: a link with one of them but without a view shows the profile, or the request. */
const OF_PROFILE = ["selector", "at", "search", "focus", "ignore", "hide", "function", "group_by", "invert", "by"];

/** Returns the values of a query string. Missing ones have their defaults, also where a text is needed; unknown ones are dropped. */
export function read(query) {
  const given = new URLSearchParams(query);
  const valueOf = ([name, value]) => [name, value ? given.get(name) || value : given.get(name) ?? value];
  const values = Object.fromEntries(Object.entries(DEFAULTS).map(valueOf));
  if (!["own", "all"].includes(values.frames)) values.frames = DEFAULTS.frames; // older links say others
  if (!given.has("view") && given.has("trace")) values.view = "requests";
  else if (!given.has("view") && OF_PROFILE.some((name) => given.has(name))) values.view = "profile";
  else if (!VIEWS.includes(values.view)) values.view = "profile";
  return values;
}

/** Returns the query string of values that differ from those of a link without them. */
export function write(values) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(DEFAULTS)) if (values[name] !== value) query.set(name, values[name]);
  if (read(query).view !== values.view) query.set("view", values.view);
  const text = query.toString();
  return text ? "?" + text : "";
}

/**
 * Returns the baseline as {selector, start, end}: by default another selector in the same time, or else the same selector
 * in the time range just before.
 */
export function baselineOf(values) {
  const chosen = values.baseline_start && values.baseline_end;
  const isOther = values.baseline_selector && values.baseline_selector !== values.selector;
  const byDefault = () => (isOther ? [values.start, values.end] : preceding(values.start, values.end));
  const [start, end] = chosen ? [values.baseline_start, values.baseline_end] : byDefault();
  return { selector: values.baseline_selector || values.selector, start, end };
}
