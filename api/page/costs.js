// What a request costs against the baseline, above the graph of a comparison: a sentence, and a row for each operation.

import * as api from "./api.js";
import { byId, element, replaceRows } from "./base/dom.js";
import { formatCount, formatValue } from "./base/format.js";
import { withMatcher } from "./base/patterns.js";
import { baselineOf, DEFAULTS } from "./state.js";

const MAX_ROWS = 50;

export class Costs {
  #state;

  constructor(state) {
    this.#state = state;
  }

  /** Compares the operations of both sides. Shows nothing where the baseline has none, or where it does not get an answer. */
  async show(values, signal) {
    const asked = values.view === "compare" && values.profile_type === DEFAULTS.profile_type;
    const answer = asked ? await api.compareOperations(values, baselineOf(values), MAX_ROWS, signal).catch(() => null) : null;
    if (signal.aborted) return;
    byId("costs").hidden = !answer?.operations.some(({ baseline_requests: before }) => before);
    if (!answer) return;
    const skipped = answer.skipped_labels;
    const hints = [
      skipped.length && `Labels that requests do not have are left out: ${skipped.join(", ")}.`,
      !/\boperation\s*=/.test(values.selector) && "The graph below has shares of all CPU: click an operation for the CPU of one request.",
    ];
    byId("costs-sentence").textContent = answer.sentence;
    byId("costs-hints").textContent = hints.filter(Boolean).join(" ");
    replaceRows(byId("cost-rows"), answer.operations.map((row) => this.#row(row)));
    const more = answer.count - answer.operations.length;
    byId("costs-more").textContent = more > 0 ? `${formatCount(more)} more operations` : "";
  }

  #row(row) {
    const { operation, sentence, requests, baseline_requests: before, requests_per_second: rate, cpu, duration, errors } = row;
    const open = () => this.#state.update({ ...bothWith(this.#state.values, operation), at: "" });
    const service = [...new Set([row.service, row.baseline_service].filter(Boolean))].join(", ");
    return element(
      "tr",
      { "data-operation": operation, "data-status": row.status },
      element("th", { scope: "row" }, element("button", { type: "button", title: `Compare the functions of ${operation}`, onclick: open }, operation), element("span", { class: "where" }, service)),
      changeCell(cpu, sentence),
      nowAndBefore(...timesOf(cpu)),
      element("td", { class: "text" }, ...went(row)),
      nowAndBefore(formatCount(requests), formatCount(before)),
      nowAndBefore(perSecond(rate), perSecond(row.baseline_requests_per_second)),
      nowAndBefore(...timesOf(duration)),
      changeCell(duration),
      errorCell(errors),
    );
  }
}

/** Both selectors with an operation. */
function bothWith({ selector, baseline_selector: baseline }, operation) {
  const of = (text) => text && withMatcher(text, "operation", operation);
  return { selector: of(selector), baseline_selector: of(baseline) };
}

const timesOf = ({ mean_ns: now, baseline_mean_ns: before }) => [now, before].map((mean) => (mean === null ? "" : formatValue(mean)));
export const perSecond = (rate) => (rate ? rate.toPrecision(3) : "0");
const percent = (rate) => (rate === null ? "" : `${+(100 * rate).toPrecision(3)} %`);
const signed = (share) => `${share < 0 ? "−" : "+"}${Math.abs(100 * share).toFixed(Math.abs(share) < 0.0995 ? 1 : 0)}`;

/** Only what is outside the confidence interval of no change is red or green. */
const colourOf = ({ status, change }) => (status === "changed" ? (change > 0 ? "worse" : "better") : "");

function nowAndBefore(now, before, change = {}) {
  return element("td", { class: colourOf(change) }, now, element("span", { class: "interval" }, before && `was ${before}`));
}

/** The share of requests that failed, now and before. */
export const errorCell = (errors) => nowAndBefore(percent(errors.rate), percent(errors.baseline_rate), errors);

/** How a cost changed: {status, change, change_low, change_high}, shares. */
export function changeCell(cost, title = "") {
  const { status, change, change_low: low, change_high: high } = cost;
  if (change === null) return element("td", { title }, status === "unsure" ? "?" : status);
  const interval = element("span", { class: "interval" }, `${signed(low)} to ${signed(high)} %`);
  return element("td", { class: colourOf(cost), title }, `${signed(change)} %`, interval);
}

/** The functions that surely changed. */
function went({ went_to: to }) {
  const sure = to?.functions.filter((row) => row.is_sure).slice(0, 3) ?? [];
  return sure.map(({ name, change_ns: ns }) => element("div", {}, `${name} ${ns < 0 ? "−" : "+"}${formatValue(Math.abs(ns))}`));
}
