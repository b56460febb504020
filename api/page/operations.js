// The view of operations: what services do for requests, what that costs, and how slow the slow ones are.

import * as api from "./api.js";
import { bar, byId, element, replaceRows } from "./base/dom.js";
import { formatBounds, formatCount, formatShare, formatValue } from "./base/format.js";
import { Ticks } from "./controls/ticks.js";
import { sparkline } from "./base/sparkline.js";
import { changeCell, errorCell, perSecond } from "./costs.js";

const MAX_ROWS = 300;

export class Operations {
  #state;
  #ticks;

  constructor(state) {
    this.#state = state;
    this.#ticks = new Ticks(state, byId("operation-rows"), byId("compare-operations"));
    for (const name of ["measure", "order", "split"]) {
      const select = byId(name);
      select.addEventListener("change", () => state.update({ [name]: select.value }));
    }
  }

  /** Lists operations and what belongs to none. Returns {total, samples, unit, start, end} of all of it, null if there is none. */
  async show(values, signal) {
    byId("measure").value = values.measure;
    byId("order").value = values.order;
    for (const head of document.querySelectorAll("[data-percentile]")) head.textContent = `${head.dataset.percentile} ${values.measure === "cpu" ? "CPU" : "duration"}`;
    let [answer, curves] = await Promise.all([api.operations(values, MAX_ROWS, signal), readCurves(values, signal)]);
    const { operations, unattributed, count, total, samples, unit, start, end, selector, skipped_labels: skipped } = answer;
    offer(answer.request_labels, values.split);
    if (skipped.length) curves = await readCurves({ ...values, selector }, signal);
    byId("operations-skipped").textContent = skipped.length ? `Labels that requests do not have are left out: ${skipped.join(", ")}.` : "";
    const rows = [...operations, ...unattributed.filter((row) => row.samples || row.sampled_cpu_ns)];
    const hadBefore = rows.some((row) => row.previous_requests || row.previous_thread_cpu_ns || row.previous_sampled_cpu_ns);
    replaceRows(byId("operation-rows"), rows.map((row) => this.#row(row, curves.get(keyOf({ ...row, ...row.labels }, values.split)), values, hadBefore)));
    this.#ticks.show();
    byId("operations-more").textContent = count > operations.length ? `${formatCount(count - operations.length)} more: select a service, or sort by something else.` : "";
    byId("operations-empty").hidden = rows.length > 0;
    byId("operations-of").textContent = selector === "{}" ? "No service" : `Nothing that ${selector} selects`;
    byId("operation-table").hidden = rows.length === 0;
    return rows.length ? { total, samples, unit, start, end } : null;
  }

  #row(row, curve, values, hadBefore) {
    const { service, operation = "", requests, share, selector, labels } = row;
    const to = (view) => () => this.#state.update({ view, selector, at: "" });
    const where = [service, ...Object.values(labels)].join(" ");
    const tick = this.#ticks.box(`${operation} ${where}`, selector, { service, operation, ...labels });
    const graph = element("button", { type: "button", title: `Profile of ${selector}`, onclick: to("profile") }, operation || "(no operation)");
    const slow = element("button", { type: "button", title: `What slow requests of ${operation} do that fast ones do not`, onclick: to("slow") }, "Slow / fast");
    const by = values.measure || "duration";
    return element(
      "tr",
      { "data-operation": operation, onclick: (event) => event.target.closest("button, input") || to(requests ? "slow" : "profile")() },
      element("th", { scope: "row" }, tick, graph, element("span", { class: "where" }, where)),
      element("td", {}, requests ? slow : ""),
      element("td", {}, ...(requests === undefined ? [] : traffic(row))),
      element("td", {}, ...(requests ? perRequest(row) : [])),
      !row.cpu_change ? element("td") : hadBefore ? changeCell(row.cpu_change) : element("td", { title: "no data before" }, "–"),
      ...["p50", "p95", "p99"].map((name) => element("td", {}, duration(row[`${name}_${by}_ns`]))),
      element("td", { class: "wide" }, formatShare(share, 1), bar(share)),
      row.error_change ? errorCell(row.error_change) : element("td"),
      element("td", { class: "trend" }, curve ? sparkline(curve) : ""),
    );
  }
}

/** CPU of one request: by the threads' CPU clocks or else by samples, and the confidence interval by samples. */
function perRequest({ requests, mean_cpu_ns: mean, sampled_cpu_ns: sampled, sampled_cpu_low_ns: low, sampled_cpu_high_ns: high }) {
  const text = mean === null ? `≈ ${formatValue(sampled / requests)}` : formatValue(mean);
  const title = "By samples: 95 % confidence interval";
  return [text, high !== null && element("span", { class: "interval", title }, formatBounds(low / requests, high / requests))];
}

const duration = (value) => (value === null || value === undefined ? "" : formatValue(value));

/** How many requests there were, how many a second, and how many in the period before: no cost, so without a colour. */
function traffic({ requests, requests_per_second: rate, previous_requests: before }) {
  return [formatCount(requests), element("span", { class: "interval" }, `${perSecond(rate)} / s, was ${formatCount(before)}`)];
}

/** The curves of operations; empty where the timeline has too many groups. */
async function readCurves(values, signal) {
  const by = ["service", "operation", values.split].filter(Boolean);
  const { groups } = await api.timelines(values, by.join(","), MAX_ROWS, signal);
  return new Map(groups.map(({ labels, values: curve }) => [keyOf(labels, values.split), curve]));
}

const keyOf = (labels, split) => JSON.stringify(["service", "operation", split].map((name) => labels[name] ?? ""));

/** Offers the labels by which operations can be split. */
function offer(labels, chosen) {
  const options = ["", ...labels].map((name) => element("option", { value: name }, name || "none"));
  byId("split").replaceChildren(...options);
  byId("split").value = chosen;
}
