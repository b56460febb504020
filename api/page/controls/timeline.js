// The timeline above the graph: values over time as bars. Dragging over it selects a time range.

import { cssVariable, element, fittedContext, onSchemeChange } from "../base/dom.js";
import { formatClock, formatDay, formatRange } from "../base/times.js";
import { hideTooltip, showTooltip } from "../base/tooltip.js";

const AXIS = 15; // pixels below the bars, for times
const MIN_DRAG = 4; // pixels; less is a click

export class Timeline {
  #canvas;
  #selection = element("div", { class: "selection", hidden: true });
  #host;
  #select;
  #sums = null; // {start, end, step, points: [[time, value]]}; times in Unix milliseconds
  #format = String;
  #drag = null;

  /** @param {(start: number, end: number) => void} select gets Unix milliseconds */
  constructor(host, select) {
    this.#host = host;
    this.#select = select;
    this.#canvas = element("canvas", { role: "img", "aria-label": "Value over time. Drag to select a time range." });
    host.append(this.#canvas, this.#selection);
    host.addEventListener("pointerdown", (event) => this.#begin(event));
    host.addEventListener("pointermove", (event) => this.#move(event));
    host.addEventListener("pointerup", (event) => this.#end(event));
    host.addEventListener("pointercancel", () => this.#cancel());
    host.addEventListener("pointerleave", () => hideTooltip());
    document.addEventListener("keydown", (event) => event.key === "Escape" && this.#cancel());
    new ResizeObserver(() => this.#paint()).observe(host);
    onSchemeChange(() => this.#paint());
  }

  /** @param {{start: number, end: number, step: number, points: [number, number][]}} sums times in Unix milliseconds */
  show(sums, format) {
    this.#sums = sums;
    this.#format = format;
    this.#paint();
  }

  #paint() {
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    if (!width) return;
    const context = fittedContext(this.#canvas);
    if (!this.#sums) return;
    const { start, end, step, points } = this.#sums;
    const scale = width / (end - start);
    const largest = points.reduce((maximum, [, value]) => Math.max(maximum, value), 0);
    const barHeight = height - AXIS - 2;
    context.fillStyle = cssVariable("--bar");
    for (const [time, value] of points) {
      const left = Math.max(0, (time - start) * scale);
      const right = Math.min(width, (time + step - start) * scale);
      const tall = value > 0 ? Math.max(1, (value / largest) * barHeight) : 0;
      if (right > left)
        context.fillRect(left, 2 + barHeight - tall, Math.max(1, right - left - (right - left > 3 ? 1 : 0)), tall);
    }
    this.#paintAxis(context, width, height, scale);
    context.textAlign = "left";
    if (largest > 0) context.fillText(this.#format(largest, step), 3, 10);
  }

  #paintAxis(context, width, height, scale) {
    const { start, end } = this.#sums;
    context.fillStyle = cssVariable("--line");
    context.fillRect(0, height - AXIS, width, 1);
    context.fillStyle = cssVariable("--muted");
    context.font = `10.5px ${getComputedStyle(document.body).fontFamily}`;
    context.textBaseline = "alphabetic";
    context.textAlign = "center";
    const step = tickStep((end - start) / Math.max(2, width / 110));
    const zone = new Date(start).getTimezoneOffset() * 60_000;
    for (let tick = Math.ceil((start - zone) / step) * step + zone; tick < end; tick += step) {
      const x = (tick - start) * scale;
      if (x < 24 || x > width - 24) continue;
      context.fillRect(x, height - AXIS, 1, 3);
      context.fillText(step >= 86_400_000 ? formatDay(tick) : formatClock(tick, step < 60_000), x, height - 2);
    }
  }

  #timeAt(event) {
    const { left, width } = this.#canvas.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (event.clientX - left) / width));
    return this.#sums.start + share * (this.#sums.end - this.#sums.start);
  }

  #begin(event) {
    if (!this.#sums || event.button !== 0) return;
    this.#drag = { from: this.#timeAt(event), x: event.clientX };
    this.#host.setPointerCapture(event.pointerId);
    event.preventDefault();
  }

  #move(event) {
    if (!this.#sums) return;
    const time = this.#timeAt(event);
    if (this.#drag) {
      const { start, end } = this.#sums;
      const percent = (position) => `${(100 * (position - start)) / (end - start)}%`;
      const [low, high] = [Math.min(this.#drag.from, time), Math.max(this.#drag.from, time)];
      this.#selection.hidden = false;
      this.#selection.style.left = percent(low);
      this.#selection.style.width = `${(100 * (high - low)) / (end - start)}%`;
      showTooltip({ title: formatRange(low, high), rows: [] }, event.clientX, event.clientY);
      return;
    }
    const { points, step } = this.#sums;
    const point = points.find(([start]) => start <= time && time < start + step);
    if (point)
      showTooltip(
        { title: this.#format(point[1], step), rows: [["", formatRange(point[0], point[0] + step)]] },
        event.clientX,
        event.clientY,
      );
    else hideTooltip();
  }

  #end(event) {
    if (!this.#drag) return;
    const { from, x } = this.#drag;
    const to = this.#timeAt(event);
    this.#cancel();
    if (Math.abs(event.clientX - x) >= MIN_DRAG) this.#select(Math.min(from, to), Math.max(from, to));
  }

  #cancel() {
    if (!this.#drag) return;
    this.#drag = null;
    this.#selection.hidden = true;
    hideTooltip();
  }
}

const TICKS = [1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];
const tickStep = (minStep) => (TICKS.find((seconds) => seconds * 1000 >= minStep) ?? 604800 * 4) * 1000;
