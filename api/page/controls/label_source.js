// What a selector can be completed with, asked once per question while one types.

import * as api from "../api.js";

const FRESH_MS = 30_000;

export class LabelSource {
  #values;
  #answers = new Map();

  /** @param {() => object} values the state's values: labels are those of the time range that is on */
  constructor(values) {
    this.#values = values;
  }

  /** Names of labels of the series that match a selector. */
  async names(selector) {
    return (await this.#asked(`names ${selector}`, () => api.labelNames({ ...this.#values(), selector }))).found;
  }

  /** Values of a label; where there are too many to list, those that contain `prefix`. */
  async values(label, selector, prefix) {
    const ask = (contains) => api.labelValues(label, { ...this.#values(), selector }, contains);
    const { found, more } = await this.#asked(`values ${label} ${selector}`, () => ask(""));
    return more && prefix ? (await ask(prefix)).found : found;
  }

  #asked(question, ask) {
    const { start, end } = this.#values();
    const key = `${start} ${end} ${question}`;
    const known = this.#answers.get(key);
    if (known && Date.now() - known.at < FRESH_MS) return known.answer;
    if (this.#answers.size > 200) this.#answers.clear();
    const answer = ask();
    answer.catch(() => this.#answers.delete(key));
    this.#answers.set(key, { at: Date.now(), answer });
    return answer;
  }
}
