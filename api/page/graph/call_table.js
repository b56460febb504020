// The call tree as a table whose rows open: the frames of the graph beside it with their values, without seeing the graph.

import { bar, element } from "../base/dom.js";
import { formatShare, formatValue } from "../base/format.js";
import { formatChange, signedValue } from "./change.js";
import { isSupported, nameOf, sidesOf } from "./look.js";
import { isCut } from "./tree.js";

/** Rows that open at once: the rest of a frame's children follows on demand, so that no tree holds up the page. */
const FIRST_CHILDREN = 20;
const MORE_CHILDREN = 200;

/** Columns beside the function. `isRoomy`: left out where there is little room. */
const TOTAL = { title: "Total", cellOf: (tree, node) => [formatValue(tree.total[node], tree.unit)] };
const SELF = { title: "Self", isRoomy: true, cellOf: (tree, node) => [formatValue(tree.self[node], tree.unit)] };
const SHARE = { title: "Share", cellOf: ({ total }, node) => [formatShare(total[node], total[0]), bar(total[node] / total[0])] };
const CHANGE = { title: "Change", cellOf: changeParts };

export class CallTable {
  #host;
  #actions;
  #content = null;
  #columns = [];
  #top = -1; // path ID of the first row
  #opened = new Set(); // path IDs of frames whose children are shown
  #listed = new Map(); // path ID -> how many children are shown, if not FIRST_CHILDREN
  #body = element("tbody", {
    onclick: ({ target }) => this.#press(target.closest("tr")),
    onkeydown: (event) => this.#key(event),
    onfocusin: ({ target }) => this.#focus(target.closest("tr"), false),
    oncontextmenu: (event) => this.#menu(event, event.clientX, event.clientY),
  });

  /** @param {{zoom(node: number): void, menu(node: number, x: number, y: number): void}} actions `node`: of the shown tree */
  constructor(host, actions) {
    this.#host = host;
    this.#actions = actions;
  }

  /**
   * @param {{tree: import("./chains.js").DrawnTree, zoomed: number, matched: ?Uint8Array, inverted: boolean}} content
   *   `zoomed`: the node of the first row; `matched`, by node: what a search finds; callers have no values of their own
   */
  show(content) {
    this.#content = content;
    const { tree, zoomed, inverted } = content;
    if (this.#top !== tree.pathId[zoomed]) this.#opened.add((this.#top = tree.pathId[zoomed]));
    const share = { ...SHARE, isRoomy: Boolean(tree.baseline) };
    this.#columns = [TOTAL, !inverted && SELF, share, tree.baseline && CHANGE].filter(Boolean);
    const focused = this.#body.contains(document.activeElement) ? document.activeElement.dataset.path : null;
    const scrolled = this.#host.scrollTop;
    this.#body.replaceChildren(...this.#rows(zoomed, 1));
    const header = ({ title, isRoomy }) => element("th", { scope: "col", class: isRoomy && "roomy" }, title);
    const head = element("thead", {}, element("tr", {}, ...[{ title: "Function" }, ...this.#columns].map(header)));
    const properties = { role: "treegrid", class: "calls", "aria-label": "Call tree and its values" };
    const button = (text, act) => element("button", { type: "button", onclick: act }, text);
    this.#host.replaceChildren(
      element("div", { class: "group sides" }, button("Open the heaviest path", () => this.#openHeaviest()), button("Close all", () => this.#closeAll())),
      element("table", properties, head, this.#body),
    );
    this.#host.scrollTop = scrolled;
    const same = focused && this.#body.querySelector(`[data-path="${focused}"]`);
    this.#focus(same || this.#body.rows[0], Boolean(same));
  }

  /** Marks the row of a node that is selected in the graph, if it is shown. */
  select(node) {
    this.#body.querySelector(".selected")?.classList.remove("selected");
    const row = this.#body.querySelector(`[data-node="${node}"]`);
    row?.classList.add("selected");
    row?.scrollIntoView({ block: "nearest" });
  }

  /** Rows of a node and of what is opened below it. */
  #rows(node, level) {
    const rows = [this.#row(node, level)];
    if (this.#isOpen(node)) rows.push(...this.#rowsBelow(node, level));
    return rows;
  }

  #rowsBelow(node, level, from = 0) {
    const children = this.#children(node);
    const listed = this.#listed.get(this.#content.tree.pathId[node]) ?? FIRST_CHILDREN;
    const rows = children.slice(from, listed).flatMap((child) => this.#rows(child, level + 1));
    if (children.length > listed) rows.push(this.#moreRow(node, level + 1, children.length - listed));
    return rows;
  }

  /** The heaviest first; in a comparison, by both sides together. */
  #children(node) {
    const { childStart, width } = this.#content.tree;
    const children = Array.from({ length: childStart[node + 1] - childStart[node] }, (_, at) => childStart[node] + at);
    return children.sort((a, b) => width[b] - width[a] || a - b);
  }

  #isOpen(node) {
    const { childStart, pathId } = this.#content.tree;
    return childStart[node] < childStart[node + 1] && this.#opened.has(pathId[node]);
  }

  #row(node, level) {
    const { tree, matched } = this.#content;
    const { functions, frame, childStart } = tree;
    const name = this.#isCut(node) ? "too small to draw: zoom in" : nameOf(tree, node);
    const title = [functions.name[frame[node]], functions.module[frame[node]], functions.file[frame[node]]].filter(Boolean).join("\n");
    const cells = this.#columns.map(({ isRoomy, cellOf }) => element("td", { class: isRoomy && "roomy" }, ...cellOf(tree, node)));
    const open = childStart[node] < childStart[node + 1] ? String(this.#isOpen(node)) : null;
    const properties = { "data-node": String(node), "data-path": String(tree.pathId[node]), "aria-expanded": open };
    return treeRow(level, matched?.[node] ? element("mark", {}, name) : name, { ...properties, title }, cells);
  }

  #moreRow(node, level, left) {
    const text = `Show ${Math.min(MORE_CHILDREN, left)} more of ${left}`;
    const properties = { class: "more", "data-more": String(node), "data-path": `more ${this.#content.tree.pathId[node]}` };
    return treeRow(level, text, properties, this.#columns.map(({ isRoomy }) => element("td", { class: isRoomy && "roomy" })));
  }

  /** Opens or closes a row, or shows more of them. */
  #press(row) {
    if (!row) return;
    if (row.dataset.more) this.#showMore(row);
    else if (this.#isCut(row.dataset.node)) this.#zoom(row);
    else this.#setOpen(row, row.ariaExpanded === "false");
    if (row.isConnected) this.#focus(row, true);
  }

  #setOpen(row, open) {
    if (row.ariaExpanded !== String(!open)) return;
    const node = Number(row.dataset.node);
    const path = this.#content.tree.pathId[node];
    row.ariaExpanded = String(open);
    if (open) {
      this.#opened.add(path);
      row.after(...this.#rowsBelow(node, levelOf(row)));
    } else {
      this.#opened.delete(path);
      while (row.nextSibling && levelOf(row.nextSibling) > levelOf(row)) row.nextSibling.remove();
    }
  }

  #isCut(node) {
    const { functions, frame } = this.#content.tree;
    return isCut(functions, frame[node]);
  }

  /** To a frame, or where frames were left out to what called them. */
  #zoom({ dataset: { node } }) {
    this.#actions.zoom(this.#isCut(node) ? this.#content.tree.parent[node] : Number(node));
  }

  #showMore(row) {
    const node = Number(row.dataset.more);
    const path = this.#content.tree.pathId[node];
    const before = this.#listed.get(path) ?? FIRST_CHILDREN;
    this.#listed.set(path, before + MORE_CHILDREN);
    const rows = this.#rowsBelow(node, levelOf(row) - 1, before);
    row.replaceWith(...rows);
    this.#focus(rows[0], true);
  }

  /** From the row that the keyboard is on, to a frame that calls nothing. */
  #openHeaviest() {
    let row = this.#body.querySelector("tr[tabindex='0'][aria-expanded]") ?? this.#body.rows[0];
    while (row.ariaExpanded) {
      this.#setOpen(row, true);
      row = row.nextSibling;
    }
    this.#focus(row, true);
  }

  #closeAll() {
    this.#opened = new Set([this.#top]);
    this.#listed.clear();
    this.show(this.#content);
  }

  /** Makes a row the one that Tab leads to, and with `move` the one that has the focus. */
  #focus(row, move) {
    if (!row) return;
    this.#body.querySelector("tr[tabindex='0']")?.setAttribute("tabindex", "-1");
    row.tabIndex = 0;
    if (move) row.focus();
  }

  #menu(event, x, y) {
    const row = event.target.closest("tr[data-node]");
    if (!row) return;
    event.preventDefault();
    const { left, bottom } = row.getBoundingClientRect();
    this.#actions.menu(Number(row.dataset.node), x || left + 20, y || bottom);
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const row = event.target.closest("tr");
    const steps = {
      ArrowDown: () => this.#focus(row.nextSibling, true),
      ArrowUp: () => this.#focus(row.previousSibling, true),
      ArrowRight: () => (row.ariaExpanded === "true" ? this.#focus(row.nextSibling, true) : row.ariaExpanded && this.#setOpen(row, true)),
      ArrowLeft: () => (row.ariaExpanded === "true" ? this.#setOpen(row, false) : this.#focus(above(row), true)),
      Home: () => this.#focus(this.#body.rows[0], true),
      Escape: () => this.#actions.zoom(Math.max(0, this.#content.tree.parent[this.#content.zoomed])),
      End: () => this.#focus(this.#body.lastChild, true),
      " ": () => this.#press(row),
      Enter: () => (row.dataset.more ? this.#press(row) : this.#zoom(row)),
      m: () => this.#menu(event, 0, 0),
    };
    if (!Object.hasOwn(steps, event.key)) return;
    event.preventDefault();
    steps[event.key]();
  }
}

/** A row whose first cell is as far to the right as its level says. */
function treeRow(level, name, properties, cells) {
  const label = element("span", { class: "call" }, name);
  label.style.setProperty("--level", level - 1);
  return element("tr", { role: "row", "aria-level": String(level), tabindex: "-1", ...properties }, element("th", { scope: "row" }, label), ...cells);
}

const levelOf = (row) => Number(row.ariaLevel);

/** The row that a row hangs below, or null. */
function above(row) {
  let before = row.previousSibling;
  while (before && levelOf(before) >= levelOf(row)) before = before.previousSibling;
  return before;
}

/** How much more a frame's total is than in the baseline, on the scale of the total beside it. */
function changeParts(tree, node) {
  const [now, before] = sidesOf(tree, node);
  const change = (now - before) / tree.baseline.profileScale;
  const supported = isSupported(tree, node);
  const kind = !supported ? null : change > 0 ? "worse" : change < 0 ? "better" : null;
  const title = supported ? null : "The samples do not support this change";
  const value = element("span", { class: kind, title }, signedValue(change, tree.unit));
  return [value, element("span", { class: "share" }, formatChange(now, before))];
}
