// The timeline above the graph: values over time as bars. Dragging over it, or keys, select a time range.

import { byId, cssVariable, element, fittedContext, onSchemeChange } from "../base/dom.js";
import { formatClock, formatDay, formatRange, zoneOffset } from "../base/times.js";
import { hideTooltip, showTooltip } from "../base/popups.js";

const AXIS = 15; // pixels below the bars, for times
const MARK_NEAR = 5; // pixels to a mark that the pointer is on
const MIN_DRAG = 4; // pixels; less is a click

export class Timeline {
  #canvas;
  #selection = element("div", { class: "selection", hidden: true });
  #host;
  #select;
  #sums = null; // {start, end, step, points: [[time, value]]}; times in Unix milliseconds
  #format = String;
  #marks = []; // [{time (Unix milliseconds), kind, text}]
  #drag = null;
  #cursor = null; // {from, to}: the steps between which the keyboard selects

  /** @param {(start: number, end: number) => void} select gets Unix milliseconds */
  constructor(host, select) {
    this.#host = host;
    this.#select = select;
    this.#canvas = element("canvas", { "aria-hidden": "true" });
    host.tabIndex = 0;
    host.setAttribute("role", "application");
    host.setAttribute(
      "aria-label",
      "Value over time. Left and right go from step to step, with Shift they select, Enter shows the selected time.",
    );
    host.append(this.#canvas, this.#selection);
    host.addEventListener("keydown", (event) => this.#key(event));
    host.addEventListener("blur", () => this.#forget());
    host.addEventListener("pointerdown", (event) => this.#begin(event));
    host.addEventListener("pointermove", (event) => this.#move(event));
    host.addEventListener("pointerup", (event) => this.#end(event));
    host.addEventListener("pointercancel", () => this.#cancel());
    host.addEventListener("pointerleave", () => hideTooltip());
    document.addEventListener("keydown", (event) => event.key === "Escape" && this.#cancel());
    new ResizeObserver(() => this.#paint()).observe(host);
    onSchemeChange(() => this.#paint());
  }

  /**
   * @param {?{start: number, end: number, step: number, points: [number, number][]}} sums times in Unix milliseconds; null: no range
   * @param {{kind: string, time: string, text: string, labels: object}[]} annotations
   */
  show(sums, format, annotations = []) {
    this.#sums = sums;
    this.#marks = annotations.map(({ kind, time, text, labels }) => {
      const { service, version, ...others } = labels;
      const about = [service, kind === "note" && version, ...Object.values(others)].filter(Boolean).join(" ");
      return { time: Date.parse(time), kind, text: about ? `${about}: ${text}` : text };
    });
    this.#format = format;
    this.#forget();
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
    for (const { time, kind } of this.#marks) {
      const x = Math.round((time - start) * scale);
      context.fillStyle = cssVariable(kind === "note" ? "--muted" : "--accent");
      context.fillRect(x - 0.5, 0, 1, height - AXIS);
      context.fillRect(x - 3, 0, 6, 4);
    }
    if (largest > 0) paintLabel(context, `highest bar: ${this.#format(largest, step)}`);
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
    const zone = zoneOffset(start);
    for (let tick = Math.ceil((start - zone) / step) * step + zone; tick < end; tick += step) {
      const x = (tick - start) * scale;
      if (x < 30 || x > width - 30) continue;
      context.fillRect(x, height - AXIS, 1, 3);
      const isDay = step >= 86_400_000 || formatClock(tick) === "00:00:00"; // a midnight says which one
      context.fillText(isDay ? formatDay(tick) : formatClock(tick, step < 60_000), x, height - 2);
    }
  }

  #key(event) {
    if (!this.#sums || event.ctrlKey || event.metaKey || event.altKey) return;
    const { start, end, points } = this.#sums;
    const moves = { ArrowLeft: -1, ArrowRight: 1 };
    if (event.key in moves && points.length) {
      const last = points.length - 1;
      const at = this.#cursor ? Math.min(last, Math.max(0, this.#cursor.to + moves[event.key])) : event.key === "ArrowLeft" ? last : 0;
      this.#cursor = { from: event.shiftKey && this.#cursor ? this.#cursor.from : at, to: at };
      this.#showCursor();
    } else if (event.key === "Enter" && this.#cursor) {
      const [from, to] = this.#cursorTimes();
      this.#select(Math.max(start, from), Math.min(end, to));
    } else if (event.key === "Escape") this.#forget();
    else if (event.key === "+" || event.key === "=") this.#select(start + (end - start) / 4, end - (end - start) / 4);
    else if (event.key === "-") this.#select(start - (end - start) / 2, Math.min(Date.now(), end + (end - start) / 2));
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Rows of a tooltip for the marks of a time range. */
  #marksIn(from, to) {
    return this.#marks.filter(({ time }) => from <= time && time < to).map(({ time, text }) => [formatClock(time), text]);
  }

  #cursorTimes() {
    const { points, step } = this.#sums;
    const { from, to } = this.#cursor;
    return [points[Math.min(from, to)][0], points[Math.max(from, to)][0] + step];
  }

  #showCursor() {
    const { points, step } = this.#sums;
    const [from, to] = this.#cursorTimes();
    this.#showSelection(from, to);
    const low = Math.min(this.#cursor.from, this.#cursor.to);
    const chosen = points.slice(low, Math.max(this.#cursor.from, this.#cursor.to) + 1);
    const value = chosen.reduce((total, point) => total + point[1], 0);
    const title = this.#format(value, step * chosen.length);
    const { left, bottom, width } = this.#canvas.getBoundingClientRect();
    const share = (from - this.#sums.start) / (this.#sums.end - this.#sums.start);
    const marks = this.#marksIn(from, to);
    showTooltip({ title, rows: [["", formatRange(from, to)], ...marks] }, left + share * width, bottom - 10);
    byId("announcer").textContent = [`${formatRange(from, to)}: ${title}`, ...marks.map((row) => row.join(" "))].join(", ");
  }

  #forget() {
    if (!this.#cursor) return;
    this.#cursor = null;
    this.#selection.hidden = true;
    hideTooltip();
  }

  #showSelection(low, high) {
    const { start, end } = this.#sums;
    const percent = (position) => (100 * Math.min(1, Math.max(0, (position - start) / (end - start))));
    this.#selection.hidden = false;
    this.#selection.style.left = `${percent(low)}%`;
    this.#selection.style.width = `${percent(high) - percent(low)}%`;
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
      const [low, high] = [Math.min(this.#drag.from, time), Math.max(this.#drag.from, time)];
      this.#showSelection(low, high);
      showTooltip({ title: formatRange(low, high), rows: [] }, event.clientX, event.clientY);
      return;
    }
    const { start, end, points, step } = this.#sums;
    const near = (MARK_NEAR * (end - start)) / this.#canvas.clientWidth;
    const marks = this.#marksIn(time - near, time + near);
    const point = points.find(([from]) => from <= time && time < from + step);
    const rows = point ? [["", formatRange(point[0], point[0] + step)], ...marks] : marks;
    if (rows.length) showTooltip({ title: point ? this.#format(point[1], step) : "", rows }, event.clientX, event.clientY);
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

/** The largest value, on a ground of its own, so that it can be read over bars. */
function paintLabel(context, text) {
  context.textAlign = "left";
  context.globalAlpha = 0.85;
  context.fillStyle = cssVariable("--ground");
  context.fillRect(0, 0, context.measureText(text).width + 7, 14);
  context.globalAlpha = 1;
  context.fillStyle = cssVariable("--muted");
  context.fillText(text, 3, 10);
}

const TICKS = [1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];
const tickStep = (minStep) => (TICKS.find((seconds) => seconds * 1000 >= minStep) ?? 604800 * 4) * 1000;
