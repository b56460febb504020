// Rows of a list that are ticked, to be compared: the second one with the first, and by a list in Compare any of them.

import { byId, element } from "../base/dom.js";
import { baselineOf } from "../state.js";

/** More rows are not compared: the first ones ticked are unticked again. */
const MOST = 10;

export class Ticks {
  #ticked = new Map(); // name by selector, as they were ticked
  #button;
  #rows;

  /** @param {HTMLElement} rows have the boxes @param {HTMLButtonElement} button compares those that are ticked */
  constructor(state, rows, button) {
    this.#rows = rows;
    this.#button = button;
    button.addEventListener("click", () => {
      const among = [...this.#ticked].map(([selector, name]) => [name, selector]);
      const [[, before], [, now]] = among;
      const times = { baseline_start: "", baseline_end: "" }; // another selector is compared in the same time
      state.update({ view: "compare", selector: now, baseline_selector: before, ...times, among: JSON.stringify(among), at: "" });
    });
  }

  /** Returns the box of a row. */
  box(name, selector) {
    const tick = ({ target }) => {
      this.#ticked.delete(selector);
      if (target.checked) this.#ticked.set(selector, name);
      if (this.#ticked.size > MOST) this.#ticked.delete(this.#ticked.keys().next().value);
      this.show();
    };
    return element("input", { type: "checkbox", value: selector, "aria-label": `Compare ${name}`, onchange: tick });
  }

  clear() {
    this.#ticked.clear();
  }

  /** Shows which rows are ticked. */
  show() {
    this.#button.disabled = this.#ticked.size < 2;
    for (const box of this.#rows.querySelectorAll("input")) box.checked = this.#ticked.has(box.value);
  }
}

/** Binds the lists of ticked rows in Compare. */
export function startTicked(state) {
  byId("ticked").addEventListener("change", ({ target }) => state.update({ selector: target.value, at: "" }));
  byId("baseline-ticked").addEventListener("change", ({ target }) => state.update({ baseline_selector: target.value, at: "" }));
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
