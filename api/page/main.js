// The page: asks the API for what the state (state.js) selects, and shows the answer in the current view.

import * as api from "./api.js";
import { byId, element } from "./base/dom.js";
import { showControls, startControls } from "./controls/controls.js";
import { Costs } from "./costs.js";
import { showFrames } from "./controls/view_bar.js";
import { formatCpus, formatValue, unitOf } from "./base/format.js";
import { Graph } from "./graph/graph.js";
import { perRequest, scaled } from "./graph/per_request.js";
import { Sandwich } from "./graph/sandwich.js";
import { showHoles } from "./holes.js";
import { Operations } from "./operations.js";
import { Requests } from "./requests.js";
import { showSelectorHelp } from "./selector_help.js";
import { Services } from "./services.js";
import { baselineOf, DEFAULTS, PageState } from "./state.js";
import { nothingBefore, nothingFound, summary } from "./summary.js";
import { Timeline } from "./controls/timeline.js";
import { toMillis, toRfc3339 } from "./base/times.js";
import { readTree } from "./graph/tree.js";
import { versionsOf } from "./versions.js";

/** Parts of the state whose change needs no new query. */
const REFINEMENTS = new Set(["search", "regex", "at", "sort", "colours", "refresh", "chains", "only", "table"]);

const state = new PageState();
const graph = new Graph(state, askMatched);
const sandwich = new Sandwich(state);
const services = new Services(state);
const operations = new Operations(state);
const requests = new Requests(state, showProblem);
const costs = new Costs(state);
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

const LOADING_MS = 200;
const views = {
  services: (values, signal) => showList("services", services, values, signal),
  operations: (values, signal) => showList("operations", operations, values, signal),
  slow: async (values, signal) => showGraph(perRequest(await api.slow(values, shapeOf(values), signal)), values),
  profile: showProfile,
  compare: showComparison,
  requests: showRequests,
};

startControls(state, load, showProblem);
showControls(state.values);
state.subscribe((values, changed) => {
  showControls(values);
  if (![...changed].every((name) => REFINEMENTS.has(name))) load();
  else if (!byId("sandwich").hidden) sandwich.refine();
  else if (graph.refine(changed)) loadView();
});
byId("cancel").addEventListener("click", cancel);
load();

/** Asks for what the state selects, and shows it. */
function load() {
  timing.abort();
  timing = new AbortController();
  showTimeline(state.values, timing.signal);
  costs.show(state.values, timing.signal);
  loadView();
}

/** Asks for what the current view shows. Aborts queries that are still running. */
async function loadView() {
  answering.abort();
  answering = new AbortController();
  const { signal } = answering;
  const { values } = state;
  byId("main").setAttribute("aria-busy", "true");
  const loading = setTimeout(() => (byId("loading").hidden = false), LOADING_MS);
  signal.addEventListener("abort", () => clearTimeout(loading));
  document.title = values.selector === "{}" ? "icestream" : `${values.selector} – icestream`;
  try {
    await views[values.view](values, signal);
    showProblem(null);
    if (holesOf !== timing) showHoles(values, timing.signal);
    holesOf = timing;
  } catch (error) {
    if (signal.aborted) return;
    hide("holes");
    holesOf = null;
    showProblem(error);
    byId("summary").replaceChildren();
    hide("services", "operations", "graph", "sandwich", "empty", "trace-detail");
  }
  if (signal.aborted) return;
  clearTimeout(loading);
  hide("loading");
  byId("main").setAttribute("aria-busy", "false");
}

/** Ends the queries that are running. What was shown before stays, and the page says so. */
function cancel() {
  answering.abort();
  timing.abort();
  showProblem(new api.ApiError("Cancelled. What is shown is the answer to an earlier query.", "Refresh to ask again."));
  hide("loading");
  byId("main").setAttribute("aria-busy", "false");
}

function hide(...parts) {
  for (const part of parts) byId(part).hidden = true;
}

async function showList(part, list, values, signal) {
  const answer = await list.show(values, signal);
  if (signal.aborted) return;
  show(part, part === "services" && answer.samples === 0);
  showSummary(answer, values);
}

async function showProfile(values, signal) {
  if (!values.function) return showGraph(await api.merge(values, shapeOf(values), signal), values);
  const answer = await api.sandwich(values, sandwich.shapeOf(graph.width), signal);
  show("sandwich", answer.samples === 0);
  sandwich.show(answer);
  return showSummary(answer, values);
}

async function showComparison(values, signal) {
  const answer = await api.diff(values, baselineOf(values), shapeOf(values), signal);
  byId("absolute").hidden = answer.aggregation === "average"; // the API always compares gauges by value
  const hasBaseline = answer.baseline_samples || !answer.samples || values.focus || values.ignore;
  if (!hasBaseline) {
    const versions = await versionsOf(values, signal).catch(() => new Map());
    show("graph", true);
    byId("empty").replaceChildren(...nothingBefore(state, answer, versions));
    return showSummary(answer, values);
  }
  const isOfRequest = answer.scaling === "request";
  showGraph(isOfRequest ? scaled(answer, answer.scale, answer.baseline_scale) : answer, values);
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
    compare: async () => {
      const answer = await api.diff(values, baselineOf(values), shape, signal);
      return { total: answer.total * (answer.scaling === "request" ? answer.scale : 1) };
    },
    slow: async () => {
      const answer = await api.slow(values, shape, signal);
      return { total: answer.total / answer.slow.requests };
    },
    requests: () => (values.trace ? api.traceTree(values.trace, values, shape, signal) : requests.compareCell(values, shape, signal)),
  };
  return (await (answers[values.view] ?? answers.profile)()).total;
}

async function showRequests(values, signal) {
  const { trace } = values;
  const compared = !trace && values.cell && values.against;
  hide("services", "operations", "sandwich");
  byId("requests").hidden = false;
  byId("requests").classList.toggle("open", Boolean(trace));
  byId("requests").classList.toggle("above", Boolean(compared));
  requests.mark(trace);
  if (!trace && !compared) {
    hide("graph", "empty");
    byId("summary").replaceChildren();
  }
  const open = async () => {
    if (trace) showGraph(await requests.open(trace, values, shapeOf(values), signal), values);
    else if (compared) showGraph(await requests.compareCell(values, shapeOf(values), signal), values);
  };
  await Promise.all([listRequests(values, signal), open()]);
}

/** Lists requests, unless one was opened from the list that is shown. */
async function listRequests(values, signal) {
  const { profile_type, selector, start, end, trace, listed, status, cell, measure } = values;
  const query = JSON.stringify([profile_type, selector, start, end, listed, status, cell, measure]);
  if (trace && listedQuery === query) return;
  await requests.list(values, listedQuery === query, signal);
  listedQuery = query;
}

function show(part, isEmpty) {
  const parts = ["services", "operations", "graph", "sandwich", "empty"];
  for (const other of parts) byId(other).hidden = other !== (isEmpty ? "empty" : part);
  if (state.values.view !== "requests") hide("requests");
  if (isEmpty) byId("empty").replaceChildren(...nothingFound(state));
}

function showGraph(answer, values) {
  const isEmpty = answer.total === 0 && !answer.baseline_total;
  show("graph", isEmpty);
  if (!isEmpty) graph.show(readTree(answer));
  showSummary(answer, values);
}

function showSummary(answer, values) {
  showFrames(answer?.frames);
  byId("summary").replaceChildren(...(byId("empty").hidden && answer ? summary(answer, values) : []));
}

/** Shows the timelines above the graph. Errors are left to the graph, which asks for the same samples. */
function showTimeline(values, signal) {
  const unit = unitOf(values.profile_type);
  const format = (value, step) =>
    values.profile_type === DEFAULTS.profile_type
      ? `${formatCpus(value / (step * 1e6))} · ${formatValue(value, unit)}`
      : formatValue(value, unit);
  const show = async (into, query) => {
    try {
      const [sums, marks] = await Promise.all([api.timeline(query, signal), api.annotations(query, signal).catch(() => [])]);
      into.show(sums, format, marks);
      return sums;
    } catch {
      if (signal.aborted) return null;
      const [start, end] = [toMillis(query.start), toMillis(query.end)];
      into.show(start < end ? { start, end, step: 1, points: [] } : null, format);
      return null;
    }
  };
  show(timeline, values).then((sums) => sums && showSelectorHelp(values, !sums.points.some(([, value]) => value !== 0), signal));
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
window.icestream = { graph, state, unanswered: api.unanswered };
