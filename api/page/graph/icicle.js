// The icicle graph: the root is on top, and a frame is as wide as its value. This handles pointer, keyboard, zoom and
// scrolling; paint.js draws.

import { element, fittedContext } from "../base/dom.js";
import { paint, ROW } from "./paint.js";
import { hideTooltip, showTooltip } from "../base/popups.js";
import { depthOf, neighbour, nodeAt } from "./tree.js";

export const ZOOM_MS = 170;
const ANCESTORS_SHOWN = 3;
const LONG_PRESS_MS = 500;

export class Icicle {
  #host;
  #canvas = element("canvas", { "aria-hidden": "true" });
  #sizer = element("div", { class: "sizer" });
  #hover = element("div", { class: "hover", hidden: true });
  #cursor = element("div", { class: "cursor", hidden: true });
  #scroll;
  #actions;
  #tree = null;
  #look = null;
  #zoomed = 0;
  #view = { left: 0, right: 1 };
  #hovered = -1;
  #selected = -1; // the node that the keyboard's cursor is on
  #frame = 0;
  #pressing = 0; // timer of a long press
  #pressed = false; // whether a long press has opened the menu, so that the click after it does not zoom

  /**
   * @param {HTMLElement} host
   * @param {{describe(node: number): {title: string, rows: [string, string][]}, zoom(node: number): void,
   *          announce(node: number): void, menu(node: number, x: number, y: number): void}} actions `zoom` is a
   *          request: the caller answers it by calling zoomTo
   */
  constructor(host, actions) {
    this.#host = host;
    this.#actions = actions;
    this.#scroll = element("div", {
      class: "scroll",
      tabindex: "0",
      role: "application",
      "aria-label":
        "Icicle graph. Arrow keys move between frames, Enter zooms in, Escape zooms out, M opens a menu. The table has the same numbers.",
      onpointermove: (event) => this.#point(event),
      onpointerleave: () => this.#leave(),
      onclick: (event) => this.#click(event),
      onpointerdown: (event) => this.#press(event),
      onpointerup: () => clearTimeout(this.#pressing),
      oncontextmenu: (event) => this.#menu(event),
      onkeydown: (event) => this.#key(event),
      onscroll: () => {
        clearTimeout(this.#pressing);
        this.#paintSoon();
      },
      onblur: () => this.#place(this.#cursor, -1),
    });
    this.#sizer.append(this.#hover, this.#cursor);
    this.#scroll.append(this.#sizer);
    host.append(this.#canvas, this.#scroll);
    new ResizeObserver(() => this.paintNow()).observe(host);
  }

  /** Shows a tree, zoomed to one of its nodes. */
  show(tree, look, zoomed = 0) {
    const cursor = this.#selected < 0 ? -1 : tree.pathId.indexOf(this.#tree.pathId[this.#selected]);
    const sameZoom = this.#tree?.pathId[this.#zoomed] === tree.pathId[zoomed]; // after a refresh, for example
    this.#tree = tree;
    this.#look = look;
    this.#selected = cursor;
    this.#leave();
    const height = `${(tree.levelStart.length - 1) * ROW + 2}px`;
    this.#sizer.style.height = height;
    this.#host.style.setProperty("--content", height);
    this.#zoomed = zoomed;
    this.#view = this.#viewOf(zoomed);
    if (!sameZoom) this.#scrollTo(zoomed);
    this.#paintSoon();
  }

  /** Changes colours, labels or matches of the shown tree. */
  setLook(look) {
    this.#look = look;
    this.#paintSoon();
  }

  /** Makes a node as wide as the graph. This is animated, unless the user prefers reduced motion. */
  zoomTo(node) {
    if (!this.#tree) return;
    const from = this.#view;
    const to = this.#viewOf(node);
    this.#zoomed = node;
    this.#leave();
    this.#scrollTo(node);
    const noMotion = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    const started = performance.now();
    const step = (now) => {
      if (this.#zoomed !== node) return;
      const done = noMotion ? 1 : Math.min(1, Math.max(0, (now - started) / ZOOM_MS));
      const eased = 1 - (1 - done) ** 3;
      this.#view = {
        left: from.left + (to.left - from.left) * eased,
        right: from.right + (to.right - from.right) * eased,
      };
      this.paintNow();
      if (done < 1) requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }

  /** Scrolls to a node and puts the keyboard's cursor on it. */
  reveal(node) {
    if (node < 0) return;
    this.#selected = node;
    const y = depthOf(this.#tree, node) * ROW;
    const { scrollTop, clientHeight } = this.#scroll;
    if (y < scrollTop || y + ROW > scrollTop + clientHeight) this.#scroll.scrollTop = y - clientHeight / 3;
    this.#paintSoon();
  }

  /** Draws now. Returns {milliseconds, rectangles} that it took. */
  paintNow() {
    if (!this.#tree || !this.#canvas.clientWidth) return { milliseconds: 0, rectangles: 0 };
    const started = performance.now();
    const context = fittedContext(this.#canvas);
    const rectangles = paint(
      context,
      this.#tree,
      this.#look,
      { ...this.#view, top: this.#scroll.scrollTop, zoomedLevel: depthOf(this.#tree, this.#zoomed) },
      this.#scroll.clientWidth,
      this.#scroll.clientHeight,
    );
    this.#place(this.#hover, this.#hovered);
    this.#place(this.#cursor, document.activeElement === this.#scroll ? this.#selected : -1);
    return { milliseconds: performance.now() - started, rectangles };
  }

  /** The size of all levels, in pixels. */
  get size() {
    return { width: this.#scroll.clientWidth, height: (this.#tree.levelStart.length - 1) * ROW };
  }

  /** Draws all levels as they stand, also those that are scrolled away. @param {object} context of a canvas, or its like */
  drawAll(context) {
    const { width, height } = this.size;
    paint(context, this.#tree, this.#look, { ...this.#view, top: 0, zoomedLevel: depthOf(this.#tree, this.#zoomed) }, width, height);
  }

  /** Returns a node's position and size in the window, in pixels. */
  screenBox(node) {
    const { left, top } = this.#host.getBoundingClientRect();
    const scale = this.#scroll.clientWidth / (this.#view.right - this.#view.left);
    return {
      left: left + (this.#tree.x[node] - this.#view.left) * scale,
      top: top + depthOf(this.#tree, node) * ROW - this.#scroll.scrollTop,
      width: this.#tree.width[node] * scale,
      height: ROW,
    };
  }

  #viewOf(node) {
    const left = this.#tree.x[node];
    return { left, right: left + (this.#tree.width[node] || 1) };
  }

  #scrollTo(node) {
    this.#scroll.scrollTop = Math.max(0, depthOf(this.#tree, node) - ANCESTORS_SHOWN) * ROW;
  }

  #paintSoon() {
    cancelAnimationFrame(this.#frame);
    this.#frame = requestAnimationFrame(() => this.paintNow());
  }

  #nodeUnder(event) {
    const { left, top } = this.#scroll.getBoundingClientRect();
    const level = Math.floor((event.clientY - top + this.#scroll.scrollTop) / ROW);
    const share = (event.clientX - left) / this.#scroll.clientWidth;
    if (share < 0 || share >= 1) return -1;
    return nodeAt(this.#tree, level, this.#view.left + share * (this.#view.right - this.#view.left));
  }

  #point(event) {
    if (!this.#tree) return;
    this.#hovered = this.#nodeUnder(event);
    this.#place(this.#hover, this.#hovered);
    this.#scroll.classList.toggle("over", this.#hovered >= 0);
    if (this.#hovered < 0) hideTooltip();
    else showTooltip(this.#actions.describe(this.#hovered), event.clientX, event.clientY);
  }

  #leave() {
    this.#hovered = -1;
    this.#place(this.#hover, -1);
    hideTooltip();
  }

  #press(event) {
    this.#pressed = false;
    clearTimeout(this.#pressing);
    if (event.pointerType !== "mouse") this.#pressing = setTimeout(() => this.#menu(event), LONG_PRESS_MS);
  }

  #menu(event) {
    clearTimeout(this.#pressing);
    const node = this.#tree ? this.#nodeUnder(event) : -1;
    if (node < 0) return;
    event.preventDefault();
    this.#pressed = event.type === "pointerdown";
    this.#openMenu(node, event.clientX, event.clientY);
  }

  #openMenu(node, x, y) {
    this.#selected = node;
    this.#leave();
    this.#actions.menu(node, x, y);
  }

  #click(event) {
    const node = this.#tree && !this.#pressed ? this.#nodeUnder(event) : -1;
    if (node < 0) return;
    this.#selected = node;
    this.#actions.zoom(node);
  }

  #key(event) {
    if (!this.#tree || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.#selected < 0 ? this.#zoomed : this.#selected;
    const next = neighbour(this.#tree, event.key, at);
    if (event.key === "Enter") this.#actions.zoom(at);
    else if (event.key === "m" || event.key === "ContextMenu") {
      const { left, top } = this.screenBox(at);
      this.#openMenu(at, Math.max(0, left) + 20, top + ROW);
    } else if (event.key === "Escape") this.#actions.zoom(Math.max(0, this.#tree.parent[this.#zoomed]));
    else if (next === undefined) return;
    else {
      this.#selected = next;
      if (!this.#isInside(next)) this.#actions.zoom(next);
      this.reveal(next);
      this.#actions.announce(next);
    }
    event.preventDefault();
  }

  #isInside(node) {
    const { x, width } = this.#tree;
    return x[node] + width[node] > this.#view.left && x[node] < this.#view.right;
  }

  #place(outline, node) {
    outline.hidden = node < 0 || !this.#isInside(node);
    if (outline.hidden) return;
    const scale = this.#scroll.clientWidth / (this.#view.right - this.#view.left);
    const left = Math.max(0, (this.#tree.x[node] - this.#view.left) * scale);
    const right = Math.min(
      this.#scroll.clientWidth,
      (this.#tree.x[node] + this.#tree.width[node] - this.#view.left) * scale,
    );
    outline.style.left = `${left}px`;
    outline.style.top = `${depthOf(this.#tree, node) * ROW}px`;
    outline.style.width = `${Math.max(2, right - left)}px`;
    outline.style.height = `${ROW}px`;
  }
}
