// The view of requests: a list of the heaviest ones, and the CPU of one of them by span, with what samples say of it.

import * as api from "./api.js";
import { bar, byId, element, replaceRows, visible } from "./base/dom.js";
import { formatCount, formatValue, profileTypeTitle } from "./base/format.js";
import { formatMoment, formatRange, formatRecent, toRfc3339 } from "./base/times.js";
import { formatCpu, confidenceInterval, measureOf, shown } from "./cpu_text.js";
import { HeatMap } from "./heat_map.js";
import { showSpans } from "./span_table.js";
import { timeTexts } from "./time_text.js";
import { showTraceLink } from "./trace_link.js";

const FIRST_ROWS = 50;
const MAX_ROWS = 1000;

export class Requests {
  #state;
  #showProblem;
  #next = null;
  #heaviest = 0;
  #map;

  /** @param {(error: Error) => void} showProblem */
  constructor(state, showProblem) {
    this.#state = state;
    this.#showProblem = showProblem;
    byId("trace-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#select(byId("trace-id").value.trim());
    });
    byId("trace-close").addEventListener("click", () => this.#select(""));
    this.#map = new HeatMap(byId("heat"), ({ measure, least, below, start, end }) =>
      state.update({ cell: [measure, least, below, start, end].join(":"), trace: "", at: "" }),
    );
    byId("map-measure").addEventListener("change", () => state.update({ measure: byId("map-measure").value }));
    byId("only-errors").addEventListener("click", () => state.update({ status: state.values.status ? "" : "error" }));
    byId("cell-close").addEventListener("click", () => state.update({ cell: "", against: "", at: "" }));
    byId("against").addEventListener("click", () => state.update({ against: state.values.against ? "" : "true", trace: "", at: "" }));
    for (const button of document.querySelectorAll("[data-order]"))
      button.addEventListener("click", () => state.update({ listed: button.dataset.order }));
  }

  /** Lists the heaviest requests of the time range. A `refresh` lists as many as are shown, up to the API's limit. */
  async list(values, refresh, signal) {
    this.#showChoice(values);
    // Without entry spans, or of too many requests, there is no map; the list says what is wrong with a selector.
    api.requestMap(values, signal).then((map) => this.#map.show(map), () => signal.aborted || this.#map.show(null));
    const shown = refresh ? byId("trace-rows").children.length : 0;
    const limit = Math.min(Math.max(shown, FIRST_ROWS), MAX_ROWS);
    const { traces, next, thinned_until: thinned, complete_above_ns: above } = await page(inCell(values), { limit }, signal);
    for (const head of document.querySelectorAll(".sampled")) head.textContent = sampledTitle(values.profile_type);
    this.#heaviest = Math.max(1, ...traces.map((trace) => trace.cpu_ns));
    replaceRows(byId("trace-rows"), traces.map((trace) => this.#row(trace)));
    byId("traces-empty").hidden = traces.length > 0;
    byId("traces").hidden = traces.length === 0;
    const limits = [
      thinned && `Before ${formatMoment(Date.parse(thinned))}, operations with many requests have only their heaviest and slowest ones, and one in a hundred.`,
      above !== null && `Requests may be missing that used at most ${formatValue(above)} in each minute.`,
    ].filter(Boolean);
    byId("traces-thinned").hidden = !limits.length;
    byId("traces-thinned").textContent = limits.join(" ");
    this.#offerMore(next);
  }

  /** Returns the comparison of the requests of the cell with the others of the time range (the API's JSON). */
  async compareCell(values, shape, signal) {
    const ids = async (which, order) =>
      (await api.traces(which, { limit: MAX_ROWS, order: "start", ...order }, signal)).traces.map((trace) => trace.trace_id);
    const cell = inCell(values);
    const [chosen, all] = await Promise.all([ids(cell, bounds(cell)), ids(values)]);
    const isChosen = new Set(chosen);
    return api.diffTraces(values, chosen, all.filter((id) => !isChosen.has(id)), shape, signal);
  }

  /**
   * Shows the sums and spans of one request. Returns its tree for the graph (the API's JSON), or that of requests like it
   * if it has too few samples for one.
   */
  async open(trace, values, shape, signal) {
    const asked = api.traceCpu(trace, values, signal);
    const treeOf = ({ few_samples: few, like }) =>
      few ? api.merge({ ...values, ...like, group_by: "" }, shape, signal) : api.traceTree(trace, values, shape, signal);
    const [sums, tree] = await Promise.all([
      asked,
      asked.then(treeOf),
    ]);
    const cpu = { ...shown(sums, values.profile_type), spans: sums.spans.map((span) => shown(span, values.profile_type)) };
    const first = showSpans(cpu);
    byId("trace-title").textContent = visible(first?.name || cpu.operation || "Request");
    showSums(cpu, sampledTitle(values.profile_type));
    byId("trace-thinned").hidden = !cpu.thinned;
    this.#showFew(cpu);
    showTraceLink(byId("trace-link"), cpu.trace_id);
    byId("trace-detail").hidden = false;
    return tree;
  }

  /** Marks the request that is being opened; "" for none. */
  mark(trace) {
    byId("trace-id").value = trace;
    if (!trace) byId("trace-detail").hidden = true;
    for (const row of byId("trace-rows").children) markRow(row, trace);
  }

  /** Says that a request has too few samples for a graph, and leads to the graph of requests like it. */
  #showFew({ few_samples: few, samples, like }) {
    byId("trace-few").hidden = !few;
    const { selector, start, end } = like;
    byId("trace-like").onclick = () => this.#state.update({ view: "profile", selector, start, end, trace: "", at: "" });
    const count = samples ? `${formatCount(samples)} ${samples === 1 ? "sample is" : "samples are"} too few for a graph.` : "No sample was taken of this request.";
    byId("trace-few-text").textContent = `${count} Below is the graph of all requests of its operation around it.`;
  }

  #showChoice({ listed, status, cell, against, measure }) {
    byId("map-measure").value = measure;
    byId("only-errors").setAttribute("aria-pressed", String(status === "error"));
    for (const button of document.querySelectorAll("[data-order]"))
      button.parentElement.setAttribute("aria-sort", button.dataset.order === listed ? "descending" : "none");
    const chosen = parseCell(cell);
    byId("cell").hidden = !chosen;
    if (!chosen) return;
    byId("against").setAttribute("aria-pressed", String(against === "true"));
    byId("cell-text").textContent = `${chosen.measure === "cpu" ? "CPU" : "duration"} ${formatValue(chosen.least)} – ${formatValue(chosen.below)}, ${formatRange(chosen.start, chosen.end)} `;
  }

  #select(trace) {
    this.#state.update({ trace, against: "", at: "" });
  }

  #row(trace) {
    const { trace_id: id, operation, service, cpu_ns: cpu, samples, start_unix_nano: start, duration_ns: duration } = trace;
    const name = element(
      "button",
      { type: "button", title: `Open request ${id}`, onclick: () => this.#select(id) },
      operation || "(no name)",
    );
    const failed = trace.status === "error" && element("span", { class: "error-flag", title: "A span ended with an error" }, "error");
    const row = element(
      "tr",
      { "data-trace": id, onclick: (event) => event.target.closest("button") || this.#select(id) },
      element("th", { scope: "row" }, name, failed),
      element("td", { class: "text" }, service),
      element("td", {}, start !== null && formatRecent(start / 1e6)),
      element("td", {}, duration !== null && formatValue(duration)),
      element("td", { title: measureOf(trace) }, formatCpu(trace), bar(cpu / this.#heaviest)),
      element("td", { title: confidenceInterval(trace)?.textContent }, formatValue(trace.sampled_cpu_ns)),
      element("td", {}, formatCount(samples)),
      element("td", { class: "text" }, element("code", { title: id }, id.slice(0, 8))),
    );
    markRow(row, this.#state.values.trace);
    return row;
  }

  #offerMore(next) {
    this.#next = next;
    const more = byId("traces-more");
    more.hidden = !next;
    more.onclick = async () => {
      more.disabled = true;
      try {
        const { traces, next: following } = await page(inCell(this.#state.values), { cursor: next });
        if (this.#next !== next) return; // a refresh has replaced the list
        byId("trace-rows").append(...traces.map((trace) => this.#row(trace)));
        this.#offerMore(following);
      } catch (error) {
        this.#showProblem(error);
      } finally {
        more.disabled = false;
      }
    };
  }
}

async function page(values, which, signal) {
  const chosen = { ...which, order: values.listed, status: values.status, ...bounds(values) };
  const { traces, ...rest } = await api.traces(values, chosen, signal);
  return { ...rest, traces: traces.map((trace) => shown(trace, values.profile_type)) };
}

/** Returns a cell of the state, {measure, least, below, start, end}, or null. */
function parseCell(text) {
  const [, measure, ...numbers] = /^(duration|cpu):(\d{1,18}):(\d{1,18}):(\d{1,15}):(\d{1,15})$/.exec(text) ?? [];
  if (!measure) return null;
  const [least, below, start, end] = numbers.map(Number);
  return { measure, least, below, start, end };
}

/** The state with the times of its cell. */
function inCell(values) {
  const cell = parseCell(values.cell);
  return cell ? { ...values, start: toRfc3339(cell.start), end: toRfc3339(cell.end) } : values;
}

/** Parameters of the size that a cell asks for; the lowest level has whatever is smaller. */
function bounds({ cell }) {
  const { measure, least, below } = parseCell(cell) ?? {};
  return measure ? { [`min_${measure}_ns`]: least > 1 && least, [`below_${measure}_ns`]: below } : {};
}

/** What sampled values of a profile type are called: "Sampled CPU", or the profile type. */
const sampledTitle = (profileType) =>
  profileTypeTitle(profileType) === "CPU" ? "Sampled CPU" : profileTypeTitle(profileType);

function markRow(row, trace) {
  if (row.dataset.trace === trace) row.setAttribute("aria-current", "true");
  else row.removeAttribute("aria-current");
}

function showSums(cpu, sampledTitle) {
  const { cpu_ns: whole, sampled_cpu_ns: sampledCpu, samples, expected_samples: expected } = cpu;
  const largest = Math.max(sampledCpu, whole, 1);
  const row = (name, value, ...more) => [element("dt", {}, name), element("dd", {}, value, ...more)];
  const isCpu = expected !== null || cpu.thread_cpu_ns > 0;
  const time = cpu.time && timeTexts(cpu.time);
  byId("trace-figures").replaceChildren(
    ...(time ? row("Time", element("span", { class: "sum" }, time.sum, " ", element("span", { class: "hint" }, time.notes.join(" ")))) : []),
    ...(isCpu ? row("CPU", formatCpu(cpu), bar(whole / largest), element("span", { class: "hint" }, measureOf(cpu))) : []),
    ...row(sampledTitle, formatValue(sampledCpu), bar(sampledCpu / largest), confidenceInterval(cpu)),
    ...row("Samples", formatCount(samples), expected === null ? "" : element("span", { class: "hint" }, `${expected} expected`)),
  );
}
