// The view of services: what each of them uses, and how that changed; or of any other label's values.

import * as api from "./api.js";
import { bar, byId, element, replaceRows } from "./base/dom.js";
import { formatCount, formatShare, formatValue, profileTypeTitle } from "./base/format.js";
import { withMatcher } from "./base/patterns.js";
import { fillLabels, showLabel } from "./controls/view_bar.js";
import { sparkline } from "./base/sparkline.js";

const MAX_ROWS = 300;

export class Services {
  #state;

  constructor(state) {
    this.#state = state;
    const select = byId("label");
    select.addEventListener("change", () => state.update({ label: select.value }));
    select.addEventListener("focus", () => fillLabels(state.values, select));
  }

  /** Lists the label's values in the time range. Returns {total, samples, unit, aggregation, start, end} of all of them. */
  async show(values, signal) {
    showLabel(byId("label"), values.label);
    const answer = await api.timelines(values, values.label, MAX_ROWS, signal);
    const steps = answer.aggregation === "average" ? stepsWithSamples(answer) : 1;
    const summed = (group) => ({ ...group, value: sum(group.values) / steps, count: sum(group.samples) });
    const groups = answer.groups.map(summed);
    const rest = answer.rest && summed(answer.rest);
    const total = sum([...groups, rest ?? { value: 0 }].map(({ value }) => value));
    const used = groups.filter(({ count }) => count !== 0);
    byId("services-value").textContent = profileTypeTitle(values.profile_type);
    byId("services-label").textContent = values.label;
    replaceRows(byId("service-rows"), [
      ...used.map((group) => this.#row(group, total, values, answer.unit)),
      ...(rest ? [element("tr", {}, ...cells(`${formatCount(rest.groups)} others`, rest, total, answer.unit))] : []),
    ]);
    const samples = sum([...used, rest ?? { count: 0 }].map(({ count }) => count));
    const { unit, aggregation, start, end } = answer;
    return { total, samples, unit, aggregation, start, end };
  }

  #row(group, total, values, unit) {
    const value = group.labels[values.label];
    const selector = withMatcher(values.selector, values.label, value);
    const open = () => this.#state.update({ view: "profile", selector, at: "" });
    const name = element("button", { type: "button", title: `Profile of ${selector}`, onclick: open }, value || `(no ${values.label})`);
    const properties = { "data-value": value, onclick: (event) => event.target.closest("button") || open() };
    return element("tr", properties, ...cells(name, group, total, unit));
  }
}

/** How many steps of a timeline have samples; at least 1. */
function stepsWithSamples({ groups, rest }) {
  const used = new Set();
  for (const { samples } of rest ? [...groups, rest] : groups)
    samples.forEach((count, step) => count !== 0 && used.add(step));
  return Math.max(used.size, 1);
}

function cells(name, { value, values, count }, total, unit) {
  return [
    element("th", { scope: "row" }, name),
    element("td", {}, formatValue(value, unit)),
    element("td", { class: "wide" }, formatShare(value, total), bar(value / total)),
    element("td", { class: "trend" }, sparkline(values)),
    element("td", {}, formatCount(count)),
  ];
}

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
