// How many requests began when, by their duration or CPU: time from left to right, larger requests further up. A cell
// opens its requests.

import { byId, cssVariable, element, fittedContext, onSchemeChange } from "./base/dom.js";
import { formatCount, formatValue } from "./base/format.js";
import { hideTooltip, showTooltip } from "./base/popups.js";
import { formatClock, formatRange } from "./base/times.js";

const LEFT = 62; // pixels, for sizes
const BELOW = 15; // for times

export class HeatMap {
  #host;
  #canvas = element("canvas", { "aria-hidden": "true" });
  #choose;
  #map = null;
  #cursor = -1; // the cell of the keyboard

  /** @param {(cell: {measure: string, least: number, below: number, start: number, end: number}) => void} choose times in Unix milliseconds */
  constructor(host, choose) {
    this.#host = host;
    this.#choose = choose;
    host.tabIndex = 0;
    host.setAttribute("role", "application");
    host.setAttribute("aria-label", "Requests by time and size. Left and right go from cell to cell, Enter opens its requests.");
    host.append(this.#canvas);
    host.addEventListener("pointermove", (event) => this.#hover(event));
    host.addEventListener("pointerleave", () => this.#point(-1));
    host.addEventListener("click", (event) => this.#open(this.#cellAt(event)));
    host.addEventListener("keydown", (event) => this.#key(event));
    host.addEventListener("blur", () => this.#point(-1));
    new ResizeObserver(() => this.#paint()).observe(host);
    onSchemeChange(() => this.#paint());
  }

  /** Shows an answer of the API; null: none. */
  show(map) {
    this.#map = map;
    this.#cursor = -1;
    this.#host.hidden = !map?.requests.length;
    this.#paint();
  }

  get #steps() {
    const { start, end, step_ms: step } = this.#map;
    return Math.max(1, Math.ceil((Date.parse(end) - Date.parse(start)) / step));
  }

  #box(cell) {
    const { clientWidth, clientHeight } = this.#canvas;
    const { step, level, bounds_ns: bounds } = this.#map;
    const width = (clientWidth - LEFT) / this.#steps;
    const height = (clientHeight - BELOW) / (bounds.length - 1);
    return { x: LEFT + step[cell] * width, y: clientHeight - BELOW - (level[cell] + 1) * height, width, height };
  }

  #paint() {
    if (!this.#map?.requests.length || !this.#canvas.clientWidth) return;
    const context = fittedContext(this.#canvas);
    const { requests, errors, bounds_ns: bounds, start, step_ms: step } = this.#map;
    const most = Math.max(...requests);
    const [colour, wrong] = [cssVariable("--accent"), cssVariable("--wrong")];
    requests.forEach((count, cell) => {
      const { x, y, width, height } = this.#box(cell);
      context.globalAlpha = 0.15 + 0.85 * Math.sqrt(count / most);
      context.fillStyle = errors[cell] ? wrong : colour;
      context.fillRect(x, y, Math.max(1, width - 0.5), Math.max(1, height - 0.5));
    });
    context.globalAlpha = 1;
    context.fillStyle = cssVariable("--muted");
    context.font = `10.5px ${getComputedStyle(document.body).fontFamily}`;
    context.textAlign = "right";
    const { clientWidth, clientHeight } = this.#canvas;
    const height = (clientHeight - BELOW) / (bounds.length - 1);
    const every = Math.ceil(13 / height);
    for (let level = 0; level < bounds.length; level += every)
      context.fillText(formatValue(bounds[level]), LEFT - 5, Math.max(9, clientHeight - BELOW - level * height + 3));
    context.textAlign = "center";
    const count = Math.max(2, Math.floor((clientWidth - LEFT) / 130));
    for (let tick = 0; tick <= count; tick++) {
      const at = Math.round((tick * this.#steps) / count);
      const x = LEFT + (at * (clientWidth - LEFT)) / this.#steps;
      context.fillText(formatClock(Date.parse(start) + at * step), Math.min(clientWidth - 26, Math.max(LEFT + 24, x)), clientHeight - 3);
    }
    if (this.#cursor >= 0) {
      const { x, y, width, height: tall } = this.#box(this.#cursor);
      context.strokeStyle = cssVariable("--text");
      context.strokeRect(x - 1, y - 1, width + 1, tall + 1);
    }
  }

  #cellAt({ clientX, clientY }) {
    if (!this.#map) return -1;
    const { left, top } = this.#canvas.getBoundingClientRect();
    const [at, up] = [clientX - left, clientY - top];
    return this.#map.step.findIndex((_, cell) => {
      const { x, y, width, height } = this.#box(cell);
      return at >= x && at < x + width && up >= y && up < y + height;
    });
  }

  #cell(cell) {
    const { measure, start, step_ms: step, bounds_ns: bounds } = this.#map;
    const from = Date.parse(start) + this.#map.step[cell] * step;
    const [least, below] = bounds.slice(this.#map.level[cell]);
    return { measure, least, below, start: from, end: Math.min(from + step, Date.parse(this.#map.end)) };
  }

  #hover(event) {
    this.#point(this.#cellAt(event), event.clientX, event.clientY);
  }

  #point(cell, x, y) {
    if (cell !== this.#cursor) {
      this.#cursor = cell;
      this.#paint();
    }
    if (cell < 0) return hideTooltip();
    const { least, below, start, end, measure } = this.#cell(cell);
    const [count, failed] = [this.#map.requests[cell], this.#map.errors[cell]];
    const title = `${formatCount(count)} ${count === 1 ? "request" : "requests"}`;
    const rows = [[measure === "cpu" ? "CPU" : measure, `${formatValue(least)} – ${formatValue(below)}`], ["began", formatRange(start, end)]];
    if (failed) rows.push(["with an error", formatCount(failed)]);
    showTooltip({ title, rows }, x, y);
    return undefined;
  }

  #open(cell) {
    if (cell < 0) return;
    hideTooltip();
    this.#choose(this.#cell(cell));
  }

  #key(event) {
    const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 };
    if (event.key in moves && this.#map) {
      const cell = Math.min(this.#map.step.length - 1, Math.max(0, this.#cursor + moves[event.key]));
      const { left, top } = this.#canvas.getBoundingClientRect();
      const { x, y } = this.#box(cell);
      this.#point(cell, left + x, top + y);
      byId("announcer").textContent = byId("tooltip").textContent;
    } else if (event.key === "Enter") this.#open(this.#cursor);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
