// The view of services: what each of them uses, and how that changed; or of any other label's values.

import * as api from "./api.js";
import { bar, byId, element, replaceRows } from "./base/dom.js";
import { formatCount, formatShare, formatValue, profileTypeTitle } from "./base/format.js";
import { withMatcher } from "./base/patterns.js";
import { fillLabels, showLabel } from "./controls/view_bar.js";
import { Ticks } from "./controls/ticks.js";
import { sparkline } from "./base/sparkline.js";
import { latestVersions, versionsOf } from "./versions.js";

const MAX_ROWS = 300;
const MOST_VERSIONS = 3;
const ORDERS = {
  name: (a, b) => (a.name < b.name ? -1 : 1),
  value: (a, b) => b.value - a.value,
  count: (a, b) => b.count - a.count,
};

export class Services {
  #state;
  #order = "value";
  #ticks;
  #listed = null; // {rows, rest, total, values, unit}: what is shown
  #versions = new Map(); // by service
  #unfolded = false; // whether rows of one sample are shown, too

  constructor(state) {
    this.#state = state;
    const select = byId("label");
    select.addEventListener("change", () => state.update({ label: select.value }));
    select.addEventListener("focus", () => fillLabels(state.values, select));
    byId("service-search").addEventListener("input", () => this.#showRows());
    this.#ticks = new Ticks(state, byId("service-rows"), byId("compare-ticked"));
    for (const button of document.querySelectorAll("#service-table [data-sort]"))
      button.addEventListener("click", () => {
        this.#order = button.dataset.sort;
        this.#showRows();
      });
  }

  /** Lists the label's values in the time range. Returns {total, samples, unit, aggregation, start, end} of all of them. */
  async show(values, signal) {
    showLabel(byId("label"), values.label);
    const none = () => new Map();
    const asked = values.label === "service" ? versionsOf(values, signal).catch(none) : Promise.resolve(none());
    const answer = await api.timelines(values, values.label, MAX_ROWS, signal);
    const steps = answer.aggregation === "average" ? stepsWithSamples(answer) : 1;
    const summed = (group) => ({ ...group, value: sum(group.values) / steps, count: sum(group.samples) });
    const groups = answer.groups.map(summed);
    const rest = answer.rest && summed(answer.rest);
    const total = sum([...groups, rest ?? { value: 0 }].map(({ value }) => value));
    const used = groups.filter(({ count }) => count !== 0);
    byId("services-value").textContent = profileTypeTitle(values.profile_type);
    byId("services-label").textContent = values.label;
    if (this.#listed?.values.label !== values.label) this.#ticks.clear();
    const rows = used.map((group) => ({ ...group, name: group.labels[values.label] }));
    this.#listed = { rows, rest, total, values, unit: answer.unit };
    this.#showRows();
    asked.then((versions) => {
      if (signal.aborted) return;
      this.#versions = versions;
      this.#showRows();
    });
    const samples = sum([...used, rest ?? { count: 0 }].map(({ count }) => count));
    const { unit, aggregation, start, end } = answer;
    return { total, samples, unit, aggregation, start, end };
  }

  /** Shows the rows that are searched for, in the chosen order. Those of one sample are one row, unless they are all. */
  #showRows() {
    const { rows, rest, total, values, unit } = this.#listed;
    for (const button of document.querySelectorAll("#service-table [data-sort]")) {
      const direction = button.dataset.sort === "name" ? "ascending" : "descending";
      button.parentElement.setAttribute("aria-sort", button.dataset.sort === this.#order ? direction : "none");
    }
    const search = byId("service-search").value.trim().toLowerCase();
    const found = rows.filter(({ name }) => name.toLowerCase().includes(search)).sort(ORDERS[this.#order]);
    const folded = search || this.#unfolded ? [] : found.filter(({ count }) => count === 1);
    const shown = folded.length > 1 ? found.filter(({ count }) => count !== 1) : found;
    const others = folded.length > 1 && shown.length ? folded : [];
    const foldedRow = () => {
      const open = () => {
        this.#unfolded = true;
        this.#showRows();
      };
      const name = element("button", { type: "button", title: "Show them", onclick: open }, `${formatCount(others.length)} others of one sample each`);
      const values = others[0].values.map((_, step) => sum(others.map((group) => group.values[step])));
      return element("tr", {}, ...cells(name, { value: sum(others.map(({ value }) => value)), values, count: others.length }, total, unit));
    };
    replaceRows(byId("service-rows"), [
      ...(shown.length ? shown : found).map((group) => this.#row(group, total, values, unit)),
      ...(others.length ? [foldedRow()] : []),
      ...(rest && !search ? [element("tr", {}, ...cells(`${formatCount(rest.groups)} others`, rest, total, unit))] : []),
    ]);
    this.#ticks.show();
  }

  #row(group, total, values, unit) {
    const value = group.labels[values.label];
    const selector = withMatcher(values.selector, values.label, value);
    const open = () => this.#state.update({ view: "profile", selector, at: "" });
    const shown = value || `(no ${values.label})`;
    const tick = this.#ticks.box(shown, selector, group.labels);
    const name = element("button", { type: "button", title: `Profile of ${selector}`, onclick: open }, shown);
    const properties = { "data-value": value, onclick: (event) => event.target.closest("button, input") || open() };
    return element("tr", properties, ...cells(name, group, total, unit, tick, this.#versionsOf(value, selector)));
  }

  /** "versions 2.3, 2.4 · compare" of a service that has several. */
  #versionsOf(service, selector) {
    const versions = this.#versions.get(service) ?? [];
    if (versions.length < 2) return null;
    const [before, now] = versions.slice(-2);
    const compare = () => this.#state.update(latestVersions(selector, versions));
    const button = element("button", { type: "button", title: `Compare ${now} of ${service} with ${before}`, onclick: compare }, "compare");
    const text = `${versions.length > MOST_VERSIONS ? "…, " : ""}${versions.slice(-MOST_VERSIONS).join(", ")}`;
    return element("span", { class: "where" }, `versions ${text} · `, button);
  }
}

/** How many steps of a timeline have samples; at least 1. */
function stepsWithSamples({ groups, rest }) {
  const used = new Set();
  for (const { samples } of rest ? [...groups, rest] : groups)
    samples.forEach((count, step) => count !== 0 && used.add(step));
  return Math.max(used.size, 1);
}

function cells(name, { value, values, count }, total, unit, tick = null, below = null) {
  return [
    element("th", { scope: "row" }, tick, name, below),
    element("td", {}, formatValue(value, unit)),
    element("td", { class: "wide" }, formatShare(value, total), bar(value / total)),
    element("td", { class: "trend" }, sparkline(values)),
    element("td", {}, formatCount(count)),
  ];
}

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
