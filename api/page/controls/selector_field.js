// A text field for a selector, with completion of labels. Arrow keys choose, Tab or Enter accepts, Escape closes.

import { debounce, element } from "../base/dom.js";
import { complete, completionAt, withBraces } from "./selector_completion.js";

const SHOWN = 50;
let fields = 0;

export class SelectorField {
  #input;
  #list;
  #source;
  #submit;
  #suggestSoon = debounce(() => this.#suggest(), 60);
  #spot = null;
  #choices = [];
  #active = -1;
  #lastQuestion = 0;
  #stale = false; // the choices are those of an earlier text
  #submitted = "";

  /**
   * @param {HTMLElement} host gets the field
   * @param {{label: string, id: string}} names
   * @param {import("./label_source.js").LabelSource} source
   * @param {(selector: string) => void} submit
   */
  constructor(host, names, source, submit) {
    this.#source = source;
    this.#submit = submit;
    const listId = `completions-${++fields}`;
    const suggest = () => {
      this.#stale = true;
      this.#activate(-1);
      this.#suggestSoon();
    };
    this.#input = element("input", {
      id: names.id,
      type: "text",
      class: "selector",
      role: "combobox",
      "aria-label": names.label,
      "aria-autocomplete": "list",
      "aria-expanded": "false",
      "aria-controls": listId,
      placeholder: "everything: click to select by a label, such as service",
      spellcheck: "false",
      autocomplete: "off",
      autocapitalize: "off",
      oninput: suggest,
      onclick: suggest,
      onkeydown: (event) => this.#key(event, suggest),
      onblur: () => {
        this.#close();
        this.#send();
      },
    });
    this.#list = element("ul", {
      id: listId,
      class: "completions",
      role: "listbox",
      "aria-label": "Completions",
      hidden: true,
    });
    host.append(this.#input, this.#list);
  }

  set value(text) {
    this.#submitted = text;
    const isTyping = document.activeElement === this.#input && this.#input.value;
    if (!isTyping || withBraces(this.#input.value) !== text) this.#input.value = text === "{}" ? "" : text;
  }

  async #suggest() {
    const question = ++this.#lastQuestion;
    this.#stale = false;
    const spot = completionAt(this.#input.value, this.#input.selectionStart ?? 0);
    if (!spot || document.activeElement !== this.#input) return this.#close();
    let choices = [];
    try {
      if (spot.what === "name") choices = await this.#source.names(spot.others);
      else choices = await this.#source.values(spot.label, spot.others, spot.prefix);
    } catch {
      // Shows no completions. Errors of the selector show when it is used.
    }
    if (question !== this.#lastQuestion || document.activeElement !== this.#input) return;
    this.#open(spot, ranked(choices, spot.prefix));
  }

  #open(spot, choices) {
    if (!choices.length || (choices.length === 1 && choices[0] === spot.prefix)) return this.#close();
    this.#spot = spot;
    this.#choices = choices;
    this.#list.replaceChildren(
      ...choices.map((choice, row) =>
        element(
          "li",
          {
            role: "option",
            id: `${this.#list.id}-${row}`,
            "aria-selected": "false",
            onpointerdown: (event) => this.#pick(event, row),
          },
          choice,
        ),
      ),
    );
    this.#list.hidden = false;
    this.#input.setAttribute("aria-expanded", "true");
    this.#activate(-1);
  }

  #close() {
    this.#suggestSoon.cancel();
    this.#lastQuestion++;
    this.#choices = [];
    this.#list.hidden = true;
    this.#input.setAttribute("aria-expanded", "false");
    this.#activate(-1);
  }

  #activate(row) {
    this.#active = row;
    [...this.#list.children].forEach((item, at) => item.setAttribute("aria-selected", String(at === row)));
    if (row < 0) return this.#input.removeAttribute("aria-activedescendant");
    this.#input.setAttribute("aria-activedescendant", `${this.#list.id}-${row}`);
    this.#list.children[row].scrollIntoView({ block: "nearest" });
  }

  #key(event, suggest) {
    const open = this.#choices.length > 0;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (!open) return suggest();
      const count = this.#choices.length;
      const step = event.key === "ArrowDown" ? 1 : -1;
      this.#activate(this.#active < 0 ? (step > 0 ? 0 : count - 1) : (this.#active + step + count) % count);
    } else if (event.key === "Tab" && open && !event.shiftKey) {
      event.preventDefault();
      this.#acceptFirst();
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (open && this.#active >= 0) this.#accept(this.#active);
      else {
        this.#close();
        this.#send();
      }
    } else if (event.key === "Escape") {
      if (open) event.preventDefault();
      this.#close(); // also drops the answer that an earlier key has asked for
    } else if (event.key === "ArrowLeft" || event.key === "ArrowRight") suggest();
    return undefined;
  }

  async #acceptFirst() {
    if (this.#stale) await this.#suggest();
    if (this.#choices.length) this.#accept(Math.max(0, this.#active));
  }

  #pick(event, row) {
    event.preventDefault(); // keeps the focus in the field
    this.#accept(row);
  }

  #accept(row) {
    const wasValue = this.#spot.what === "value";
    const { text, cursor } = complete(this.#input.value, this.#spot, this.#choices[row]);
    this.#input.value = text;
    this.#input.setSelectionRange(cursor, cursor);
    this.#close();
    if (wasValue) this.#send();
    else this.#suggest();
  }

  #send() {
    const text = withBraces(this.#input.value);
    if (text === this.#submitted) return;
    this.#submitted = text;
    this.#submit(text);
  }
}

/** Returns choices that contain the prefix; those that start with it come first. */
function ranked(choices, prefix) {
  const typed = prefix.toLowerCase();
  const matches = choices.filter((choice) => choice.toLowerCase().includes(typed));
  const order = (choice) => (choice.toLowerCase().startsWith(typed) ? 0 : 1);
  return matches.sort((a, b) => order(a) - order(b)).slice(0, SHOWN);
}
