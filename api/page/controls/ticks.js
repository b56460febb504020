// Rows of a list that are ticked, to be compared: versions with the lowest one, others with the first one that was ticked,
// and by a list in Compare any of them.

import { byId, element, visible } from "../base/dom.js";
import { compareVersions, isVersion } from "../base/version_order.js";
import { baselineOf } from "../state.js";

/** More rows are not compared: the first ones ticked are unticked again. */
export const MOST = 10;

export class Ticks {
  #ticked = new Map(); // {name, labels} by selector, as they were ticked
  #button;
  #rows;

  /** @param {HTMLElement} rows have the boxes @param {HTMLButtonElement} button compares those that are ticked */
  constructor(state, rows, button) {
    this.#rows = rows;
    this.#button = button;
    button.addEventListener("click", () => {
      const { rows, before, now } = this.#sides();
      state.update(comparisonOf(rows.map(({ name, selector }) => [name, selector]), before.selector, now.selector));
    });
  }

  /** Returns the box of a row, which has these labels. */
  box(name, selector, labels) {
    const tick = ({ target }) => {
      this.#ticked.delete(selector);
      if (target.checked) this.#ticked.set(selector, { name, labels });
      if (this.#ticked.size > MOST) this.#ticked.delete(this.#ticked.keys().next().value);
      this.show();
    };
    return element("input", { type: "checkbox", value: selector, "aria-label": `Compare ${name}`, onchange: tick });
  }

  clear() {
    this.#ticked.clear();
  }

  /** Shows which rows are ticked, and what the button compares. */
  show() {
    const { differing, before, now } = this.#sides();
    const textOf = ({ labels }) => differing.map((label) => labels[label] || `(no ${label})`).join(" ");
    this.#button.disabled = !now;
    this.#button.textContent = now ? `Compare ${visible(textOf(now))} with baseline ${visible(textOf(before))}` : "Compare ticked rows";
    for (const box of this.#rows.querySelectorAll("input")) box.checked = this.#ticked.has(box.value);
  }

  /** Which rows are ticked, the labels in which they differ, and the two to compare first: the lowest and highest version. */
  #sides() {
    const rows = [...this.#ticked].map(([selector, row]) => ({ selector, ...row }));
    const differs = (label) => rows.some(({ labels }) => labels[label] !== rows[0].labels[label]);
    const differing = Object.keys(rows[0]?.labels ?? {}).filter(differs);
    const version = differing.find((label) => rows.every(({ labels }) => isVersion(labels[label])));
    if (version) rows.sort((a, b) => compareVersions(a.labels[version], b.labels[version]));
    return { rows, differing, before: rows[0], now: rows[version ? rows.length - 1 : 1] };
  }
}

/** What compares two selectors in the same time; `among`: [[name, selector]] of those to choose from. */
export function comparisonOf(among, before, now) {
  const times = { baseline_start: "", baseline_end: "" }; // another selector is compared in the same time
  return { view: "compare", selector: now, baseline_selector: before, ...times, among: JSON.stringify(among), at: "" };
}

/** Binds the lists of ticked rows in Compare, and the button that swaps both sides. */
export function startTicked(state) {
  byId("ticked").addEventListener("change", ({ target }) => state.update({ selector: target.value, at: "" }));
  byId("baseline-ticked").addEventListener("change", ({ target }) => state.update({ baseline_selector: target.value, at: "" }));
  byId("swap").addEventListener("click", () => {
    const { selector, start, end } = state.values;
    const before = baselineOf(state.values);
    const times = before.start === start && before.end === end ? {} : { baseline_start: start, baseline_end: end };
    state.update({ ...before, baseline_selector: selector === before.selector ? "" : selector, ...times, at: "" });
  });
}

export function showTicked(values) {
  const among = pairs(values.among);
  for (const [id, chosen] of [["ticked", values.selector], ["baseline-ticked", baselineOf(values).selector]]) {
    const list = byId(id);
    list.hidden = values.view !== "compare" || !among.length;
    list.replaceChildren(...among.map(([name, selector]) => element("option", { value: selector }, name)));
    list.value = chosen; // nothing, if another one was typed
  }
}

/** The ticked rows of an address, [[name, selector]]; none where it has something else. */
function pairs(text) {
  try {
    return JSON.parse(text || "[]").filter((pair) => pair.length === 2 && pair.every((part) => typeof part === "string"));
  } catch {
    return [];
  }
}
