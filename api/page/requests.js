// The view of requests: a list of the heaviest ones, and the CPU of one of them by span, with what samples say of it.

import * as api from "./api.js";
import { bar, byId, element } from "./base/dom.js";
import { formatCount, formatInterval, formatShare, formatValue, profileTypeTitle } from "./base/format.js";

export class Requests {
  #state;
  #showProblem;
  #next = "";
  #heaviest = 0;

  /** @param {(error: Error) => void} showProblem */
  constructor(state, showProblem) {
    this.#state = state;
    this.#showProblem = showProblem;
    byId("trace-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#select(byId("trace-id").value.trim());
    });
    byId("trace-close").addEventListener("click", () => this.#select(""));
  }

  /** Lists the heaviest requests of the time range. */
  async list(values, signal) {
    const { traces, next } = await api.traces(values, "", signal);
    for (const head of document.querySelectorAll(".sampled")) head.textContent = sampledTitle(values.profile_type);
    this.#heaviest = traces[0]?.cpu_ns ?? 0;
    byId("trace-rows").replaceChildren(...traces.map((trace) => this.#row(trace)));
    byId("traces-empty").hidden = traces.length > 0;
    byId("traces").hidden = traces.length === 0;
    this.#offerMore(next);
  }

  /** Shows the sums and spans of one request. Returns its tree for the graph (the API's JSON). */
  async open(trace, values, shape, signal) {
    const [cpu, tree] = await Promise.all([
      api.traceCpu(trace, values, signal),
      api.traceTree(trace, values, shape, signal),
    ]);
    const spans = inTreeOrder(cpu.spans);
    byId("trace-title").textContent = spans[0]?.span.name || "Request";
    showSums(cpu, sampledTitle(values.profile_type));
    this.#showFew(cpu);
    showSpans(spans, cpu.cpu_ns);
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
    byId("trace-few-text").textContent = samples
      ? `${formatCount(samples)} ${samples === 1 ? "sample is" : "samples are"} too few for a graph: what it shows is chance.`
      : "No sample was taken of this request.";
  }

  #select(trace) {
    this.#state.update({ trace, at: "" });
  }

  #row(trace) {
    const { trace_id: id, operation, service, cpu_ns: cpu, samples } = trace;
    const name = element(
      "button",
      { type: "button", title: `Open request ${id}`, onclick: () => this.#select(id) },
      operation || "(no name)",
    );
    const row = element(
      "tr",
      { "data-trace": id, onclick: (event) => event.target.closest("button") || this.#select(id) },
      element("th", { scope: "row" }, name),
      element("td", { class: "text" }, service),
      element("td", { title: measureOf(trace) }, formatCpu(trace), bar(cpu / this.#heaviest)),
      element("td", {}, formatValue(trace.sampled_cpu_ns), intervalOf(trace)),
      element("td", {}, formatCount(samples)),
      element("td", { class: "text" }, element("code", { title: id }, id.slice(0, 8))),
    );
    markRow(row, this.#state.values.trace);
    return row;
  }

  #offerMore(next) {
    this.#next = next ?? "";
    const more = byId("traces-more");
    more.hidden = !this.#next;
    more.onclick = async () => {
      more.disabled = true;
      try {
        const page = await api.traces(this.#state.values, this.#next);
        byId("trace-rows").append(...page.traces.map((trace) => this.#row(trace)));
        this.#offerMore(page.next);
      } catch (error) {
        this.#showProblem(error);
      } finally {
        more.disabled = false;
      }
    };
  }
}

/** What sampled values of a profile type are called: "Sampled CPU", or the profile type. */
const sampledTitle = (profileType) =>
  profileTypeTitle(profileType) === "CPU" ? "Sampled CPU" : profileTypeTitle(profileType);

function markRow(row, trace) {
  if (row.dataset.trace === trace) row.setAttribute("aria-current", "true");
  else row.removeAttribute("aria-current");
}

/** How the CPU of a request was measured. */
function measureOf({ cpu_ns: cpu, thread_cpu_ns: threadCpu }) {
  if (!threadCpu) return "by samples";
  return cpu === threadCpu ? "by the threads' CPU clocks" : "by the threads' CPU clocks, and by samples in services without them";
}

/** The CPU of a request or span; "≈" in front says that no clock measured it. */
const formatCpu = ({ cpu_ns: cpu, thread_cpu_ns: threadCpu }) => `${threadCpu || !cpu ? "" : "≈ "}${formatValue(cpu)}`;

/** The 95 % confidence interval of sampled CPU, or null. */
const intervalOf = ({ sampled_cpu_low_ns: low, sampled_cpu_high_ns: high }) =>
  high === null ? null : element("span", { class: "interval", title: "95 % confidence interval" }, formatInterval(low, high));

function showSums(cpu, sampledTitle) {
  const { cpu_ns: whole, sampled_cpu_ns: sampledCpu, samples, expected_samples: expected } = cpu;
  const largest = Math.max(sampledCpu, whole, 1);
  const row = (name, value, ...more) => [element("dt", {}, name), element("dd", {}, value, ...more)];
  const isCpu = expected !== null || cpu.thread_cpu_ns > 0;
  byId("trace-figures").replaceChildren(
    ...(isCpu ? row("CPU", formatCpu(cpu), bar(whole / largest), element("span", { class: "hint" }, measureOf(cpu))) : []),
    ...row(sampledTitle, formatValue(sampledCpu), bar(sampledCpu / largest), intervalOf(cpu)),
    ...row("Samples", formatCount(samples), expected === null ? "" : element("span", { class: "hint" }, `${expected} expected`)),
  );
}

function showSpans(spans, whole) {
  byId("span-rows").replaceChildren(
    ...spans.map(({ span, depth }) => {
      const name = element(
        "th",
        { scope: "row" },
        span.name || (/^0*$/.test(span.span_id) ? "(no span)" : span.span_id),
      );
      name.style.paddingLeft = `${8 + Math.min(8, depth) * 14}px`;
      const share = element("span", { class: "share" }, formatShare(span.cpu_ns, whole));
      const cells = [
        element("td", { class: "text" }, span.service),
        element("td", { class: "bars" }, bar(span.cpu_ns / (whole || 1))),
        element("td", {}, formatCpu(span), share),
        element("td", {}, formatValue(span.sampled_cpu_ns), intervalOf(span)),
      ];
      return element("tr", { title: `span ${span.span_id}` }, name, ...cells);
    }),
  );
}

/** Returns {span, depth}: each span after its parent, heaviest first. A span with an unknown parent is a root. */
function inTreeOrder(spans) {
  const known = new Set(spans.map((span) => span.span_id));
  const children = new Map();
  for (const span of spans) {
    const parent = known.has(span.parent_span_id) && span.parent_span_id !== span.span_id ? span.parent_span_id : "";
    children.set(parent, [...(children.get(parent) ?? []), span]);
  }
  const ordered = [];
  const open = (children.get("") ?? []).reverse().map((span) => ({ span, depth: 0 }));
  while (open.length) {
    const { span, depth } = open.pop();
    ordered.push({ span, depth });
    for (const child of (children.get(span.span_id) ?? []).reverse()) open.push({ span: child, depth: depth + 1 });
  }
  const reached = new Set(ordered.map(({ span }) => span));
  const inCycles = spans.filter((span) => !reached.has(span));
  return [...ordered, ...inCycles.map((span) => ({ span, depth: 0 }))];
}
