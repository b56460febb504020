// Calls of the query API (docs/query-api.md).

import { saveFile } from "./base/dom.js";

/** An error of the API: what is wrong, and what to do about it. */
export class ApiError extends Error {
  constructor(message, hint = "") {
    super(message);
    this.hint = hint;
  }
}

/** Most frames of one graph. The API cuts the others. */
const MAX_NODES = 50_000;

const selection = ({ selector, start, end }) => ({ selector, start, end });
const query = (values) => ({ profile_type: values.profile_type, ...selection(values) });

/**
 * Which part of a tree to answer with: what is not narrower than half a pixel if the node `root` (a path ID; "" for all)
 * is `width` pixels wide; or with `focus`, only sums of the stacks that a regular expression matches.
 * @typedef {{width?: number, root?: string, max_nodes?: number, focus?: string}} Shape
 */
const DRAWN = { format: "tree", max_nodes: MAX_NODES };

/** Which stacks, and which of their frames. */
const framesOf = ({ focus, ignore, hide, frames, by }) => ({ focus, ignore, hide, frames, by });
const mergeOf = (values) => ({
  ...query(values),
  ...framesOf(values),
  invert: values.invert,
  group_by: values.group_by,
});
const diffOf = (values, baseline) => ({
  ...query(values),
  baseline_selector: baseline.selector,
  baseline_start: baseline.start,
  baseline_end: baseline.end,
  absolute: values.absolute,
  ...framesOf(values),
  invert: values.invert,
});
const slowOf = (values) => ({ ...query(values), measure: values.measure, ...framesOf(values), invert: values.invert });
const traceOf = (values) => ({ profile_type: values.profile_type, ...framesOf(values), invert: values.invert });

/** @param {Shape} shape */
export const merge = (values, shape, signal) => ask("merge", { ...mergeOf(values), ...DRAWN, ...shape }, signal);

/** A text that is sent even if it is empty; null: it is not sent. */
const exactly = (text) => text !== null && { toString: () => text };

/** Both sides of the function in the state: {callers, callees, total, of_total}. @param {Shape} shape */
export const sandwich = (values, shape, signal) => {
  const { function: name, module, file } = values;
  const question = { ...query(values), ...framesOf(values), function: name, module: exactly(module), file: exactly(file) };
  return ask("sandwich", { ...question, max_nodes: MAX_NODES, ...shape }, signal);
};

/** The lines of one function: {unit, total, lines: [{line, flat, cumulative}]}. */
export async function lines(values, { name, module, file }, pattern, signal) {
  const question = { ...query(values), by: "line", focus: pattern, order: "cumulative", limit: 10_000 };
  const { unit, total, top } = await ask("top", question, signal);
  const isLine = (row) => row.name === `${name}:${row.line}` && row.module === module && row.file === file;
  return { unit, total, lines: top.filter(isLine).sort((a, b) => a.line - b.line) };
}

/** Files of what is shown: [[title, address]]. Go PGO has all frames: it takes no other parameters of them. */
export function downloads(values, baseline) {
  const { focus, ignore } = values;
  const stacks = { focus, ignore };
  const link = (title, route, parameters) => [title, address(route, parameters).href];
  if (values.view === "compare")
    return [
      link("JSON", "diff", { ...diffOf(values, baseline), max_nodes: MAX_NODES }),
      link("Collapsed stacks", "diff", { ...diffOf(values, baseline), format: "collapsed" }),
    ];
  if (values.view === "slow") return [link("JSON", "operations/slow", { ...slowOf(values), max_nodes: MAX_NODES })];
  const isTrace = values.view === "requests";
  const route = isTrace ? traceRoute(values.trace) : "merge";
  const whole = isTrace ? { profile_type: values.profile_type } : query(values);
  const shown = isTrace ? traceOf(values) : mergeOf(values);
  return [
    link("pprof", route, { ...shown, format: "pprof" }),
    link("Collapsed stacks", route, { ...shown, format: "collapsed" }),
    link("speedscope", route, { ...shown, format: "speedscope" }),
    link("Firefox Profiler", route, { ...shown, format: "firefox" }),
    link("Arrow", route, { ...shown, format: "arrow" }),
    link("JSON lines", route, { ...shown, format: "jsonl" }),
    link("Go PGO", route, { ...whole, ...stacks, format: "pgo" }),
    link("JSON", route, { ...shown, format: "tree", max_nodes: MAX_NODES }),
  ];
}

/** @param {Shape} shape `baseline`: {selector, start, end} */
export const diff = (values, baseline, shape, signal) =>
  ask("diff", { ...diffOf(values, baseline), ...DRAWN, ...shape }, signal);

/** The sum over time: {start, end, step, points: [[time, value]]}, times in Unix milliseconds. */
export async function timeline(values, signal) {
  const answer = await ask("timeline", { ...query(values), limit: 1 }, signal);
  const sums = answer.groups[0]?.values ?? [];
  const points = answer.times_unix_milli.map((time, step) => [time, sums[step] ?? 0]);
  return { start: Date.parse(answer.start), end: Date.parse(answer.end), step: answer.step_ms, points };
}

/** The sums over time by the values of a label: {unit, step_ms, groups: [{labels, values, samples}], rest}. */
export const timelines = (values, label, limit, signal) =>
  ask("timeline", { ...query(values), sum_by: label, limit }, signal);

/** Operations of services: {operations, unattributed, count, unit, selector, skipped_labels}. */
export const operations = (values, limit, signal) =>
  ask("operations", { ...query(values), order: values.order, by: values.split, limit, skip_labels: true }, signal);

/** What a request costs on both sides: {sentence, operations, count}. `baseline` as of `diff`. */
export const compareOperations = (values, { selector, start, end }, limit, signal) =>
  ask("operations/compare", { ...query(values), baseline_selector: selector, baseline_start: start, baseline_end: end, limit, skip_labels: true }, signal);

/** Slow requests of an operation as a comparison with fast ones: {slow, fast} and a tree. @param {Shape} shape */
export const slow = (values, shape, signal) => ask("operations/slow", { ...slowOf(values), max_nodes: MAX_NODES, ...shape }, signal);

/** Marks of a timeline: [{kind: note | deployment, time, text, labels}]. */
export const annotations = async (values, signal) => (await ask("annotations", query(values), signal)).annotations;

/** What is missing in the range: {complete, missing_cpu_ns, holes, more}. */
export const completeness = (values, signal) => ask("completeness", { ...selection(values), limit: 100 }, signal);

export const profileTypes = async () => (await ask("profile-types", {})).profile_types.map(({ id }) => id);

/** Names of labels of matching series: {entries, more}. */
export async function labelNames(values) {
  const { labels, more } = await ask("labels", selection(values));
  return { entries: labels, more };
}

/** Values of a label that contain a text: {entries, more}. */
export async function labelValues(name, values, contains) {
  const { values: entries, more } = await ask(`labels/${encodeURIComponent(name)}/values`, {
    ...selection(values),
    contains,
  });
  return { entries, more };
}

/** A page of the heaviest requests: the first `limit` ones, or those after `cursor`, the `next` of the previous page. */
export const traces = (values, which, signal) => ask("traces", { ...query(values), ...which }, signal);

/** Counts requests by when they began and by their size. */
export const requestMap = (values, signal) => ask("requests/map", { ...query(values), measure: values.measure }, signal);

/** Requests of one list as a comparison with those of another. @param {Shape} shape */
export const diffTraces = (values, trace_ids, baseline_trace_ids, shape, signal) =>
  ask("diff", { profile_type: values.profile_type, ...framesOf(values), invert: values.invert, ...DRAWN, ...shape }, signal, { trace_ids, baseline_trace_ids });

export const traceCpu = (trace, values, signal) =>
  ask(traceRoute(trace), { profile_type: values.profile_type }, signal);
/** @param {Shape} shape */
export const traceTree = (trace, values, shape, signal) =>
  ask(traceRoute(trace), { ...traceOf(values), ...DRAWN, ...shape }, signal);

const traceRoute = (trace) => `traces/${encodeURIComponent(trace)}/cpu`;

/** Returns the address of a query, without empty parameters. */
function address(route, parameters) {
  const url = new URL(`api/v1/${route}`, document.baseURI);
  for (const [name, value] of Object.entries(parameters)) if (value) url.searchParams.set(name, value);
  return url;
}

let waiting = 0;

/** Returns how many questions have no answer yet. */
export const unanswered = () => waiting;

/** Returns the JSON of a route. Throws ApiError, or AbortError if aborted. */
async function ask(route, parameters, signal, body) {
  waiting++;
  try {
    const answer = await jsonOf(await responseOf(address(route, parameters), signal, body));
    if (answer) return answer;
  } finally {
    waiting--;
  }
  throw new ApiError("The answer is incomplete, or not one of the query API.", "Refresh to ask again. A proxy may have answered.");
}

/** Saves a file of `downloads`. Throws ApiError: of a link, the browser would not say why it failed. */
export async function save(href) {
  const response = await responseOf(href);
  const [, name] = /filename="(.*?)"/.exec(response.headers.get("Content-Disposition")) ?? [];
  saveFile(await response.blob(), name ?? new URL(href).pathname.split("/").at(-1));
}

/** Returns an answer that is no error. Throws as `ask`. */
async function responseOf(url, signal, body) {
  let response;
  try {
    const headers = { Accept: "application/json", ...(body && { "Content-Type": "application/json" }) };
    const sent = body && { method: "POST", body: JSON.stringify(body) };
    response = await fetch(url, { signal, headers, ...sent });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The query API cannot be reached.", "Is icestream running? Refresh to ask again.");
  }
  if (response.ok) return response;
  const { message, hint } = (await jsonOf(response))?.error ?? {};
  throw new ApiError(message || `The query API answered ${response.status} ${response.statusText}.`, hint);
}

/** The JSON of an answer, or null. */
const jsonOf = (response) =>
  response.json().catch((error) => {
    if (error.name === "AbortError") throw error;
    return null;
  });
