// Requests: the heaviest ones as a list, and one of them: its CPU per span, sampled beside the threads' clock.

import * as api from "./api.js";
import { bar, byId, element } from "./dom.js";
import { formatCount, formatShare, formatValue, profileTypeTitle } from "./format.js";

export class Requests {
  #state;
  #complain;
  #next = "";
  #heaviest = 0;

  /** @param {(error: Error) => void} complain shows what went wrong */
  constructor(state, complain) {
    this.#state = state;
    this.#complain = complain;
    byId("trace-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#open(byId("trace-id").value.trim());
    });
    byId("trace-close").addEventListener("click", () => this.#open(""));
  }

  /** The list of the heaviest requests of the range. */
  async list(values, signal) {
    const { traces, next } = await api.traces(values, "", signal);
    for (const head of document.querySelectorAll(".sampled")) head.textContent = profileTypeTitle(values.profile_type);
    this.#heaviest = traces[0]?.sampled_cpu_ns ?? 0;
    byId("trace-rows").replaceChildren(...traces.map((trace) => this.#row(trace)));
    byId("traces-empty").hidden = traces.length > 0;
    byId("traces").hidden = traces.length === 0;
    this.#offerMore(next);
  }

  /** One request: its figures and spans. Returns the tree for the graph (the API's JSON). */
  async one(trace, values, signal) {
    const [cpu, tree] = await Promise.all([api.traceCpu(trace, values, signal), api.traceTree(trace, values, signal)]);
    const spans = inOrder(cpu.spans);
    byId("trace-title").textContent = spans[0]?.span.name || "Request";
    showFigures(cpu, profileTypeTitle(values.profile_type));
    showSpans(spans, cpu.sampled_cpu_ns);
    byId("trace-detail").hidden = false;
    return tree;
  }

  /** Says which request is being opened, "" for none. */
  begin(trace) {
    byId("trace-id").value = trace;
    if (!trace) byId("trace-detail").hidden = true;
    for (const row of byId("trace-rows").children) mark(row, trace);
  }

  #open(trace) {
    this.#state.update({ trace, at: "" });
  }

  #row(trace) {
    const { trace_id: id, operation, service, sampled_cpu_ns: cpu, thread_cpu_ns: clock, samples } = trace;
    const name = element(
      "button",
      { type: "button", title: `Open request ${id}`, onclick: () => this.#open(id) },
      operation || "(no name)",
    );
    const row = element(
      "tr",
      { "data-trace": id, onclick: (event) => event.target.closest("button") || this.#open(id) },
      element("th", { scope: "row" }, name),
      element("td", { class: "text" }, service),
      element("td", {}, formatValue(cpu), bar(cpu / this.#heaviest)),
      element("td", {}, clock ? formatValue(clock) : "–"),
      element("td", {}, formatCount(samples)),
      element("td", { class: "text" }, element("code", { title: id }, id.slice(0, 8))),
    );
    mark(row, this.#state.values.trace);
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
        this.#complain(error);
      } finally {
        more.disabled = false;
      }
    };
  }
}

function mark(row, trace) {
  if (row.dataset.trace === trace) row.setAttribute("aria-current", "true");
  else row.removeAttribute("aria-current");
}

function showFigures({ sampled_cpu_ns: cpu, thread_cpu_ns: clock, samples }, title) {
  const figures = [
    [`${title}, sampled CPU`, formatValue(cpu), cpu],
    ["thread CPU", clock ? formatValue(clock) : "not known", clock ?? 0],
  ];
  const most = Math.max(cpu, clock ?? 0, 1);
  byId("trace-figures").replaceChildren(
    ...figures.flatMap(([name, text, value]) => [element("dt", {}, name), element("dd", {}, text, bar(value / most))]),
    element("dt", {}, "samples"),
    element("dd", {}, formatCount(samples)),
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
      const share = element("span", { class: "share" }, formatShare(span.sampled_cpu_ns, whole));
      const cells = [
        element("td", { class: "text" }, span.service),
        element("td", { class: "bars" }, bar(span.sampled_cpu_ns / (whole || 1))),
        element("td", {}, formatValue(span.sampled_cpu_ns), share),
        element("td", {}, span.thread_cpu_ns ? formatValue(span.thread_cpu_ns) : "–"),
      ];
      return element("tr", { title: `span ${span.span_id}` }, name, ...cells);
    }),
  );
}

/** Spans as {span, depth}, each below its parent, the heaviest first; a parent that is not there makes a root. */
function inOrder(spans) {
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
  const placed = new Set(ordered.map(({ span }) => span));
  const inCircles = spans.filter((span) => !placed.has(span));
  return [...ordered, ...inCircles.map((span) => ({ span, depth: 0 }))];
}
