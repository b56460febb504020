// The control for a time range: a button that shows it, and a popover with presets and two fields to type into.

import { element } from "../base/dom.js";
import { canonicalTime, describeRange, isRelative, PRESETS, formatMoment, toMillis, toRfc3339 } from "../base/times.js";

export class RangeField {
  #button;
  #panel;
  #from;
  #to;
  #problem;
  #submit;
  #shown = ["now-15m", "now"];

  /** @param {(start: string, end: string) => void} submit gets times as the API takes them */
  constructor(host, { id, label }, submit) {
    this.#submit = submit;
    this.#button = element("button", {
      id,
      type: "button",
      "aria-haspopup": "dialog",
      "aria-expanded": "false",
      "aria-label": label,
      onclick: () => this.#toggle(this.#panel.hidden),
    });
    const field = (name) =>
      element("input", { type: "text", spellcheck: "false", autocomplete: "off", "aria-label": name });
    this.#from = field("From");
    this.#to = field("To");
    this.#problem = element("p", { class: "field-problem", role: "alert", hidden: true });
    const form = element(
      "form",
      { onsubmit: (event) => this.#apply(event) },
      element("label", {}, "From", this.#from),
      element("label", {}, "To", this.#to),
      this.#problem,
      element("p", { class: "hint" }, "now, now-15m, 2026-01-31 12:00, or Unix seconds"),
      element("button", { type: "submit" }, "Apply"),
    );
    const presets = PRESETS.map((start) =>
      element("button", { type: "button", onclick: () => this.#choose(start, "now") }, describeRange(start, "now")),
    );
    const fixed = element(
      "button",
      { type: "button", title: "Use absolute times, so that a link always shows the same samples", onclick: () => this.#makeAbsolute() },
      "Make these times absolute",
    );
    presets.push(fixed);
    this.#panel = element(
      "div",
      { class: "popover range", role: "dialog", "aria-label": label, hidden: true },
      element("div", { class: "presets" }, ...presets),
      form,
    );
    host.append(this.#button, this.#panel);
    host.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || this.#panel.hidden) return;
      this.#toggle(false);
      this.#button.focus();
    });
    document.addEventListener("pointerdown", (event) => {
      if (!host.contains(event.target)) this.#toggle(false);
    });
  }

  show(start, end) {
    this.#shown = [start, end];
    this.#button.textContent = describeRange(start, end);
    this.#from.value = typed(start);
    this.#to.value = typed(end);
  }

  #toggle(open) {
    this.#panel.hidden = !open;
    this.#button.setAttribute("aria-expanded", String(open));
    if (open) this.#panel.querySelector("button").focus();
  }

  /** Replaces relative times by absolute ones. */
  #makeAbsolute() {
    const [start, end] = this.#shown.map((text) => toMillis(text));
    if (start < end) this.#choose(toRfc3339(start), toRfc3339(end));
  }

  #apply(event) {
    event.preventDefault();
    try {
      this.#choose(canonicalTime(this.#from.value), canonicalTime(this.#to.value));
    } catch (error) {
      this.#showProblem(error.message);
    }
  }

  #choose(start, end) {
    if (!(toMillis(start) < toMillis(end))) return this.#showProblem("“From” must be before “To”.");
    this.#showProblem("");
    this.#toggle(false);
    this.#button.focus();
    this.#submit(start, end);
  }

  #showProblem(message) {
    this.#problem.textContent = message;
    this.#problem.hidden = !message;
  }
}

/** Returns an API time as a person would type it: in the zone that is shown, without its name, to the millisecond. */
function typed(text) {
  const millis = toMillis(text);
  if (isRelative(text) || Number.isNaN(millis)) return text;
  const fraction = toRfc3339(millis).slice(19, -1);
  return formatMoment(millis) + (fraction === ".000" ? "" : fraction);
}
