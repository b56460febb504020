// The page: asks the API for what the state (state.js) selects, and shows the answer in the current view.

import * as api from "./api.js";
import { byId, element } from "./base/dom.js";
import { showControls, startControls } from "./controls/controls.js";
import { formatCount, formatShare, formatValue, unitOf } from "./base/format.js";
import { Graph } from "./graph/graph.js";
import { showHoles } from "./holes.js";
import { Requests } from "./requests.js";
import { baselineOf, DEFAULTS, PageState } from "./state.js";
import { Timeline } from "./controls/timeline.js";
import { describeRange, formatRange, toMillis, toRfc3339 } from "./base/times.js";
import { readTree } from "./graph/tree.js";

/** Parts of the state whose change needs no new query. */
const REFINEMENTS = new Set(["search", "regex", "at", "sort", "colours", "refresh"]);

const state = new PageState();
const graph = new Graph(state, askMatched);
const requests = new Requests(state, showProblem);
const timeline = new Timeline(byId("timeline"), (start, end) =>
  state.update({ start: toRfc3339(start), end: toRfc3339(end) }),
);
const baselineTimeline = new Timeline(byId("baseline-timeline"), (start, end) =>
  state.update({ baseline_start: toRfc3339(start), baseline_end: toRfc3339(end) }),
);
let answering = new AbortController();
let timing = new AbortController();
let holesOf = null; // the controller of the load whose holes are shown: a zoom does not change them
let listedQuery = ""; // the query whose list of requests is shown

const views = { profile: showProfile, compare: showComparison, requests: showRequests };

startControls(state, load);
showControls(state.values);
state.subscribe((values, changed) => {
  showControls(values);
  if (![...changed].every((name) => REFINEMENTS.has(name))) load();
  else if (graph.refine(changed)) loadView();
});
load();

/** Asks for what the state selects, and shows it. */
function load() {
  timing.abort();
  timing = new AbortController();
  showTimeline(state.values, timing.signal);
  loadView();
}

/** Asks for what the current view shows. Aborts queries that are still running. */
async function loadView() {
  answering.abort();
  answering = new AbortController();
  const { signal } = answering;
  const { values } = state;
  byId("main").setAttribute("aria-busy", "true");
  document.title = values.selector === "{}" ? "icestream" : `${values.selector} – icestream`;
  try {
    await (views[values.view] ?? showProfile)(values, signal);
    showProblem(null);
    if (holesOf !== timing) showHoles(values, timing.signal);
    holesOf = timing;
  } catch (error) {
    if (signal.aborted) return;
    hide("holes");
    holesOf = null;
    showProblem(error);
    byId("summary").replaceChildren();
    hide("graph", "empty", "trace-detail");
  }
  if (!signal.aborted) byId("main").setAttribute("aria-busy", "false");
}

function hide(...parts) {
  for (const part of parts) byId(part).hidden = true;
}

async function showProfile(values, signal) {
  byId("requests").hidden = true;
  showAnswer(await api.merge(values, shapeOf(values), signal), values);
}

async function showComparison(values, signal) {
  byId("requests").hidden = true;
  showAnswer(await api.diff(values, baselineOf(values), shapeOf(values), signal), values);
}

/** The part of the tree that the graph can draw. */
function shapeOf({ at }) {
  return { width: graph.width, root: /^[0-9a-f]{8}$/.test(at) ? at : "" };
}

/** Returns the sum of the stacks that a regular expression matches, whatever the graph leaves out. */
async function askMatched(focus, signal) {
  const { values } = state;
  const shape = { focus, max_nodes: 1 };
  const answers = {
    profile: () => api.merge(values, shape, signal),
    compare: () => api.diff(values, baselineOf(values), shape, signal),
    requests: () => api.traceTree(values.trace, values, shape, signal),
  };
  return (await (answers[values.view] ?? answers.profile)()).total;
}

async function showRequests(values, signal) {
  const { trace } = values;
  byId("requests").hidden = false;
  byId("requests").classList.toggle("open", Boolean(trace));
  requests.mark(trace);
  if (!trace) {
    hide("graph", "empty");
    byId("summary").replaceChildren();
  }
  const open = async () => trace && showAnswer(await requests.open(trace, values, shapeOf(values), signal), values);
  await Promise.all([listRequests(values, signal), open()]);
}

/** Lists requests, unless one was opened from the list that is shown. */
async function listRequests(values, signal) {
  const { profile_type, selector, start, end, trace } = values;
  const query = JSON.stringify([profile_type, selector, start, end]);
  if (trace && listedQuery === query) return;
  await requests.list(values, signal);
  listedQuery = query;
}

function showAnswer(answer, values) {
  const isEmpty = answer.total === 0 && !answer.baseline_total;
  byId("graph").hidden = isEmpty;
  byId("empty").hidden = !isEmpty;
  byId("summary").replaceChildren(...(isEmpty ? [] : summary(answer, values)));
  if (isEmpty) byId("empty").replaceChildren(...nothingFound(values));
  else graph.show(readTree(answer));
}

function summary(answer, values) {
  const { unit, total, samples, stacks, cut } = answer;
  const isCpu = values.profile_type === DEFAULTS.profile_type;
  const parts = [
    element("strong", { id: "total", "data-value": total }, `${formatValue(total, unit)}${isCpu ? " CPU" : ""}`),
    `${formatCount(samples)} samples`,
    `${formatCount(stacks)} stacks`,
  ];
  if (answer.start && values.view !== "requests") {
    const [start, end] = [Date.parse(answer.start), Date.parse(answer.end)];
    if (isCpu) parts.push(`${(total / ((end - start) * 1e6)).toPrecision(2)} CPUs on average`);
    parts.push(formatRange(start, end));
  }
  if (answer.baseline_total !== undefined) {
    const how = answer.relative ? "compared by share" : "compared by value";
    parts.push(`baseline ${formatValue(answer.baseline_total, unit)}, ${how}`);
  }
  if (cut.nodes && !answer.root)
    parts.push(`${formatCount(cut.nodes)} frames are too small to draw (${formatShare(cut.value, total)}): zoom in`);
  return parts.map((part) => (part instanceof Node ? part : element("span", {}, part)));
}

function nothingFound(values) {
  const wider = () => state.update({ start: "now-1d", end: "now" });
  const everything = () => state.update({ selector: "{}" });
  return [
    element("h2", {}, values.trace && values.view === "requests" ? "No samples of this request." : "No samples here."),
    element("p", {}, `There are no samples of ${values.selector} in ${describeRange(values.start, values.end)}.`),
    element(
      "p",
      {},
      element("button", { type: "button", onclick: wider }, "Show the last day"),
      " ",
      values.selector !== "{}" && element("button", { type: "button", onclick: everything }, "Show all labels"),
    ),
    element(
      "p",
      { class: "hint" },
      "A host shows up a few seconds after its collector starts (icestream up, or icestream collect).",
    ),
  ];
}

/** Shows the timelines above the graph. Errors are left to the graph, which asks for the same samples. */
function showTimeline(values, signal) {
  const unit = unitOf(values.profile_type);
  const format = (value, step) =>
    values.profile_type === DEFAULTS.profile_type
      ? `${(value / (step * 1e6)).toPrecision(2)} CPUs · ${formatValue(value, unit)}`
      : formatValue(value, unit);
  const show = async (into, query) => {
    try {
      into.show(await api.timeline(query, signal), format);
    } catch {
      if (!signal.aborted)
        into.show({ start: toMillis(query.start), end: toMillis(query.end), step: 1, points: [] }, format);
    }
  };
  show(timeline, values);
  if (values.view === "compare") show(baselineTimeline, { ...values, ...baselineOf(values) });
}

/** Shows an error in the API's words; null hides it. */
function showProblem(error) {
  byId("problem").hidden = !error;
  if (!error) return;
  const { message, hint } = error;
  byId("problem").replaceChildren(element("strong", {}, message), ...(hint ? [element("span", {}, hint)] : []));
  if (!(error instanceof api.ApiError)) console.error(error);
}

/** For the browser's console, tests and the benchmark. */
window.icestream = { graph, state };
