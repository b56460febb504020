// The table of functions beside the graph: the same sums in sortable rows, accessible without seeing the graph.

import { formatChange, sides, signedValue } from "./change.js";
import { bar, element } from "../base/dom.js";
import { formatShare, formatValue } from "../base/format.js";
import { lineAddress } from "../dialogs/lines.js";

const FIRST_ROWS = 100;
const MORE_ROWS = 400;
const SIZE = "size"; // an order: by how much functions changed, either way

/** Columns. The page's address has the `key` of the column to sort by. */
const PROFILE_COLUMNS = [
  { key: "name", title: "Function", hint: "" },
  { key: "flat", title: "Flat", hint: "in the function itself" },
  { key: "cumulative", title: "Cumulative", hint: "with what it called" },
];
const COMPARE_COLUMNS = [
  { key: "name", title: "Function", hint: "" },
  { key: "flat", title: "Flat", hint: "in the function itself, and its change" },
  { key: "cumulative", title: "Cumulative", hint: "with what it called, and its change" },
  { key: "change", title: "Flat change", hint: "how much more it is than in the baseline, had that the same total (or number of requests)" },
];

export class FunctionTable {
  #host;
  #actions;
  #shown = FIRST_ROWS;
  #unfolded = false; // whether changes are listed that the samples do not support
  #content = null;
  #where = new Map(); // functions that share their name -> where they are

  /**
   * @param {{sort(key: string): void, highlight(row: number): void, zoom(row: number): void, only(side: string): void,
   *          menu(row: number, x: number, y: number): void}} actions `row`: of functions
   */
  constructor(host, actions) {
    this.#host = host;
    this.#actions = actions;
  }

  /**
   * @param {{tree: object, sums: object, filter: ?Uint8Array, marked: ?Uint8Array, sort: string, only: string,
   *          whole: number, columns: ?string[], values: object}} content
   *   `filter` and `marked` by function; `only`: "new" or "gone" functions of a comparison; `whole`: the value that is
   *   100 %; `columns`: the keys of those to show, null for all; `values`: the page's state
   */
  show(content) {
    if (this.#content?.tree !== content.tree) {
      this.#shown = FIRST_ROWS;
      this.#unfolded = false;
      this.#where = placesOfNamesakes(content.tree.functions);
    }
    this.#content = content;
    const { tree, sums, filter, only } = content;
    const sort = content.sort || (tree.baseline ? "change" : "flat");
    const all = tree.baseline ? COMPARE_COLUMNS : PROFILE_COLUMNS;
    const columns = all.filter(({ key }) => !content.columns || content.columns.includes(key));
    const found = [...sums.rows].filter((row) => row > 0 && (!filter || filter[row]));
    const listed = tree.baseline ? found.filter((row) => isOn(sums, row, only)) : found;
    const folds = sums.changed && sort.endsWith("change") && !filter && !only && !this.#unfolded;
    const certain = folds ? listed.filter((row) => sums.changed[row]) : listed;
    const isOpen = folds && !certain.length; // a table without rows would say nothing
    const bySize = isOpen && sort === "change";
    const rows = isOpen ? listed : certain;
    const shown = firstRows(rows, this.#shown, content, bySize ? SIZE : sort);
    const body = element("tbody", {}, ...shown.map((row) => this.#row(row, columns)));
    const folded = folds && !isOpen ? listed.filter((row) => !sums.changed[row]) : [];
    if (folded.length) body.append(this.#foldedRow(folded, columns));
    const table = element(
      "table",
      { class: "functions", "aria-label": "Functions and their values" },
      element("thead", {}, element("tr", {}, ...columns.map((column) => this.#header(column, sort)))),
      body,
    );
    const parts = tree.baseline ? [this.#sides(sums, found, only), table] : [table];
    if (isOpen && rows.length) parts.splice(1, 0, element("p", { class: "hint" }, bySize ? "Not certain, largest first" : "Not certain"));
    if (!rows.length)
      parts.push(element("p", { class: "empty" }, filter ? "No function matches the search." : "No functions."));
    if (rows.length > shown.length) parts.push(this.#moreButton(rows.length - shown.length));
    const top = this.#host.scrollTop;
    const focused = this.#host.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    this.#host.replaceChildren(...parts);
    this.#host.scrollTop = top;
    // The buttons are new: restores the focus.
    if (focused) this.#host.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }

  #header(column, sort) {
    const down = sort === column.key;
    const up = sort === `-${column.key}`;
    const order = column.key === "name" ? [up, down] : [down, up];
    return element(
      "th",
      { scope: "col", class: column.key, "aria-sort": order[0] ? "descending" : order[1] ? "ascending" : "none" },
      element(
        "button",
        {
          type: "button",
          "data-key": column.key,
          title: column.hint,
          onclick: () => this.#actions.sort(down ? `-${column.key}` : column.key),
        },
        column.title,
      ),
    );
  }

  /** Marks the row of a function that is selected in the graph, and shows it. */
  select(row) {
    for (const marked of this.#host.querySelectorAll("tr.selected")) marked.classList.remove("selected");
    const shown = this.#host.querySelector(`tr[data-row="${row}"]`);
    shown?.classList.add("selected");
    shown?.scrollIntoView({ block: "nearest" });
  }

  #row(row, columns) {
    const { tree, sums, whole, marked } = this.#content;
    const { functions, unit } = tree;
    const name = element(
      "button",
      {
        type: "button",
        "data-key": `function ${functions.name[row]}`,
        title: `${functions.name[row]}\n${functions.module[row]}\nClick to highlight, double-click to zoom to the widest frame, right-click for more.`,
        onclick: () => this.#actions.highlight(row),
        ondblclick: () => this.#actions.zoom(row),
      },
      functions.name[row],
    );
    const where = this.#where.get(row);
    const place = where ? element("span", { class: "where" }, where) : sourceOf(functions, row, this.#content.values);
    const cells = [element("th", { scope: "row" }, name, place)];
    for (const { key } of columns.filter((column) => sums[column.key])) {
      const value = sums[key][row];
      const share = tree.baseline ? changeText(tree, sums, key, row) : formatShare(value, whole);
      const cell = element("td", {}, formatValue(value, unit), element("span", { class: "share" }, share));
      if (!tree.baseline) cell.append(bar(value / whole));
      cells.push(cell);
    }
    if (tree.baseline) cells.push(changeCell(tree, sums, row));
    const menu = (event) => {
      event.preventDefault();
      this.#actions.menu(row, ...pointOf(event));
    };
    const properties = { "data-row": row, "aria-current": marked?.[row] ? "true" : null, oncontextmenu: menu };
    return element("tr", properties, ...cells);
  }

  /** Buttons that show all functions of a comparison, or those on one side only. */
  #sides(sums, rows, only) {
    const button = ([side, title]) => {
      const count = rows.filter((row) => isOn(sums, row, side)).length;
      const properties = { type: "button", "data-key": `only ${side}`, "aria-pressed": String(side === only) };
      return element("button", { ...properties, onclick: () => this.#actions.only(side) }, `${title} (${count})`);
    };
    const sides = [["", "All"], ["new", "New"], ["gone", "Gone"]];
    return element("div", { class: "group sides", role: "group", "aria-label": "Functions on one side" }, ...sides.map(button));
  }

  /** A row for functions whose change the samples do not support, with the sums of them; a click shows them. */
  #foldedRow(rows, columns) {
    const { tree, sums } = this.#content;
    const show = () => {
      this.#unfolded = true;
      this.show(this.#content);
    };
    const text = `▸ ${rows.length} others, not certain`;
    const properties = { type: "button", "data-key": "folded", title: "Show the functions whose change the samples do not support", onclick: show };
    const flat = rows.reduce((sum, row) => sum + sums.flat[row], 0);
    const change = rows.reduce((sum, row) => sum + difference(tree, sums, row), 0);
    const cells = { flat: formatValue(flat, tree.unit), change: signedValue(change, tree.unit) };
    const others = columns.filter(({ key }) => key !== "name").map(({ key }) => element("td", {}, cells[key] ?? ""));
    return element("tr", { class: "folded" }, element("th", { scope: "row" }, element("button", properties, text)), ...others);
  }

  #moreButton(left) {
    const more = () => {
      this.#shown += MORE_ROWS;
      this.show(this.#content);
    };
    return element(
      "button",
      { type: "button", class: "more", onclick: more },
      `Show ${Math.min(MORE_ROWS, left)} more of ${left}`,
    );
  }
}

/** Where a function starts: the file's name and the line, as a link if this browser has a template of the repository. */
function sourceOf({ file, line, name }, row, values) {
  if (!file[row] || name[row].includes(file[row])) return null;
  const text = file[row].slice(file[row].lastIndexOf("/") + 1) + (line[row] ? `:${line[row]}` : "");
  const href = lineAddress(values, file[row], line[row]);
  const properties = { class: "source", title: file[row] };
  return href ? element("a", { ...properties, href, target: "_blank", rel: "noreferrer" }, text) : element("span", properties, text);
}

/** Returns where a menu opens: at the pointer, or below what the keyboard is on. */
function pointOf({ clientX, clientY, target }) {
  if (clientX || clientY) return [clientX, clientY];
  const { left, bottom } = target.getBoundingClientRect();
  return [left, bottom];
}

/** Whether a function of a comparison is on one side only: "new", "gone", or "" for any. */
function isOn({ cumulative, baselineCumulative }, row, side) {
  if (side === "new") return cumulative[row] !== 0 && baselineCumulative[row] === 0;
  return side !== "gone" || (cumulative[row] === 0 && baselineCumulative[row] !== 0);
}

/** Returns the module and source file of functions that share their name with others, as far as they differ. */
function placesOfNamesakes(functions) {
  const namesakes = new Map();
  functions.name.forEach((name, row) => {
    const rows = namesakes.get(name);
    if (rows) rows.push(row);
    else namesakes.set(name, [row]);
  });
  const places = new Map();
  for (const rows of namesakes.values()) {
    if (rows.length < 2) continue;
    const differing = ["module", "file"].filter((column) => new Set(rows.map((row) => functions[column][row])).size > 1);
    for (const row of rows) places.set(row, differing.map((column) => functions[column][row]).filter(Boolean).join(" "));
  }
  return places;
}

/** Returns the first rows in an order, at most `count`. `content` as that of a table; `rows` may be sorted. */
export function firstRows(rows, count, { tree, sums }, sort) {
  const ascending = sort.startsWith("-");
  const key = sort.replace(/^-/, "");
  const { name } = tree.functions;
  const byName = (a, b) => (name[a] < name[b] ? -1 : name[a] > name[b] ? 1 : a - b);
  if (key === "name") return rows.sort((a, b) => (ascending ? byName(b, a) : byName(a, b))).slice(0, count);
  const value = key === "change" ? (row) => difference(tree, sums, row) : key === SIZE ? (row) => Math.abs(difference(tree, sums, row)) : (row) => (sums[key] ?? sums.flat)[row];
  const place = ascending ? value : (row) => -value(row);
  return withPlaces(rows, count, place).sort((a, b) => place(a) - place(b) || byName(a, b)).slice(0, count);
}

/** Returns the rows that may be among the first: to sort all of 50,000 takes several times as long. */
function withPlaces(rows, count, place) {
  if (rows.length <= count) return rows;
  const last = Float64Array.from(rows, place).sort()[count - 1];
  return rows.filter((row) => place(row) <= last);
}

const baselineOf = { flat: "baselineFlat", cumulative: "baselineCumulative" };

function changeText(tree, sums, key, row) {
  return formatChange(...sides(tree.baseline, sums[key][row], sums[baselineOf[key]][row]));
}

/** On the scale of the flat value beside it: a function cannot have grown by more than it has. */
function difference(tree, sums, row) {
  if (!tree.baseline) return sums.flat[row];
  const [now, before] = sides(tree.baseline, sums.flat[row], sums.baselineFlat[row]);
  return (now - before) / tree.baseline.profileScale;
}

function changeCell(tree, sums, row) {
  const change = difference(tree, sums, row);
  const supported = !sums.changed || sums.changed[row];
  const kind = !supported ? "" : change > 0 ? "worse" : change < 0 ? "better" : "";
  return element("td", { class: kind }, signedValue(change, tree.unit));
}
