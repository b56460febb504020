// Names and values of labels that complete a selector. Answers are kept for a while, as typing repeats questions.

import * as api from "../api.js";

const FRESH_MS = 30_000;

export class LabelSource {
  #values;
  #answers = new Map();

  /** @param {() => object} values returns the state: it has the time range of the labels */
  constructor(values) {
    this.#values = values;
  }

  /** Returns names of labels of the series that match a selector. */
  async names(selector) {
    return (await this.#ask(`names ${selector}`, () => api.labelNames({ ...this.#values(), selector }))).entries;
  }

  /** Returns values of a label; if there are too many to list, those that contain `prefix`. */
  async values(label, selector, prefix) {
    const ask = (contains) => api.labelValues(label, { ...this.#values(), selector }, contains);
    const { entries, more } = await this.#ask(`values ${label} ${selector}`, () => ask(""));
    return more && prefix ? (await ask(prefix)).entries : entries;
  }

  #ask(question, ask) {
    const { start, end } = this.#values();
    const key = `${start} ${end} ${question}`;
    const cached = this.#answers.get(key);
    if (cached && Date.now() - cached.time < FRESH_MS) return cached.answer;
    if (this.#answers.size > 200) this.#answers.clear();
    const answer = ask();
    answer.catch(() => this.#answers.delete(key));
    this.#answers.set(key, { time: Date.now(), answer });
    return answer;
  }
}
