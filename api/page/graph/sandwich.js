// The callers and the callees of one function: two graphs, each with its table. They zoom by themselves.

import { byId, element, onSchemeChange } from "../base/dom.js";
import { CallTable } from "./call_table.js";
import { foldChains, chainOf, withAllFrames } from "./chains.js";
import { announce, describeFrame } from "./description.js";
import { showFrameMenu } from "./frame_menu.js";
import { exactSums, largestNode, sumFunctions } from "./function_sums.js";
import { FunctionTable } from "./function_table.js";
import { Icicle } from "./icicle.js";
import { makeLook } from "./look.js";
import { functionAt, readTree } from "./tree.js";

/** Frames that are too narrow show up to this zoom: the API is asked for this many times the pixels of the graph. */
const ZOOM = 16;
const MAX_WIDTH = 100_000;

export class Sandwich {
  #state;
  #sides;

  constructor(state) {
    this.#state = state;
    this.#sides = [
      new Side(state, "callers", ["name", "cumulative"]), // callers have no flat values: these are not spent there
      new Side(state, "callees", ["name", "flat", "cumulative"]),
    ];
    byId("sandwich-close").addEventListener("click", () => state.update({ function: "", module: null, file: null }));
    onSchemeChange(() => this.refine());
  }

  /** The part of both trees to ask for, for a graph of `width` pixels. */
  shapeOf = (width) => ({ width: Math.min(MAX_WIDTH, width * ZOOM) });

  show(answer) {
    const { function: name, module, file } = this.#state.values;
    byId("sandwich-title").replaceChildren(element("span", { class: "clipped", title: name }, name), element("span", { class: "where" }, [module, file].filter(Boolean).join(" ")));
    for (const side of this.#sides) side.show(readTree({ ...answer[side.name], unit: answer.unit }));
  }

  /** Draws again, with or without chains, beside the table of functions or of calls. */
  refine() {
    for (const side of this.#sides) side.refine();
  }
}

class Side {
  #state;
  #columns;
  #tree = null;
  #drawn = null;
  #unfolded = new Set();
  #zoomed = 0;
  #sums = null;
  #marked = null; // by function, the one that was clicked in the table
  #sort = "cumulative";
  #icicle;
  #table;
  #callTable;

  constructor(state, name, columns) {
    this.#state = state;
    this.#columns = columns;
    this.name = name;
    const zoom = (drawn) => this.#zoom(this.#drawn.nodeOf[drawn]);
    const menu = (drawn, x, y) => showFrameMenu(state, functionAt(this.#tree, this.#drawn.frame[drawn]), x, y, this.#unfoldItem(drawn));
    const describe = (drawn) => this.#describe(drawn);
    this.#icicle = new Icicle(byId(name), { describe, zoom, announce: (drawn) => this.#announce(drawn), menu });
    this.#callTable = new CallTable(byId(`${name}-table`), { zoom, menu });
    this.#table = new FunctionTable(byId(`${name}-table`), {
      sort: (key) => {
        this.#sort = key;
        this.#showTable();
      },
      highlight: (row) => this.#highlight(row),
      zoom: (row) => this.#zoom(largestNode(this.#tree, row)),
      menu: (row, x, y) => showFrameMenu(state, functionAt(this.#tree, row), x, y),
    });
    this.#reset.addEventListener("click", () => this.#zoom(0));
  }

  show(tree) {
    const zoomedTo = this.#tree?.pathId[this.#zoomed] ?? 0;
    this.#tree = tree;
    this.#unfolded = new Set();
    this.#marked = null;
    this.#setZoom(Math.max(0, tree.pathId.indexOf(zoomedTo))); // after a refresh, the same
    this.refine();
  }

  refine() {
    if (!this.#tree) return;
    this.#draw();
    this.#showTable();
  }

  #draw() {
    const all = this.#state.values.chains === "all";
    this.#drawn = all ? withAllFrames(this.#tree) : foldChains(this.#tree, this.#unfolded, this.#inverted);
    this.#icicle.show(this.#drawn, makeLook(this.#drawn, this.#marked, false), this.#drawn.drawnOf[this.#zoomed]);
  }

  get #inverted() {
    return this.name === "callers";
  }

  #chain(drawn) {
    return chainOf(this.#tree, this.#drawn.nodeOf[drawn], this.#drawn.folded[drawn], this.#inverted);
  }

  get #reset() {
    return byId(`${this.name}-reset`);
  }

  #zoom(node) {
    if (node < 0) return;
    this.#setZoom(node);
    this.#icicle.zoomTo(this.#drawn.drawnOf[node]);
    this.#showTable();
  }

  #setZoom(node) {
    this.#zoomed = node;
    this.#sums = node ? sumFunctions(this.#tree, node) : exactSums(this.#tree);
    this.#reset.hidden = node === 0;
  }

  #showTable() {
    if (this.#state.values.table === "calls") {
      const zoomed = this.#drawn.drawnOf[this.#zoomed];
      return this.#callTable.show({ tree: this.#drawn, zoomed, matched: null, inverted: this.#inverted });
    }
    const { frame, total } = this.#tree;
    // The function itself is no caller.
    const rows = this.name === "callers" ? this.#sums.rows.filter((row) => row !== frame[1]) : this.#sums.rows;
    return this.#table.show({
      tree: this.#tree,
      sums: { ...this.#sums, rows },
      filter: null,
      marked: this.#marked,
      sort: this.#sort,
      only: "",
      whole: total[this.#zoomed],
      columns: this.#columns,
      values: this.#state.values,
    });
  }

  #highlight(row) {
    this.#marked = this.#marked?.[row] ? null : new Uint8Array(this.#tree.functions.count).fill(1, row, row + 1);
    this.#icicle.setLook(makeLook(this.#drawn, this.#marked, false));
    const widest = largestNode(this.#tree, row);
    if (this.#marked && widest >= 0) this.#icicle.reveal(this.#drawn.drawnOf[widest]);
    this.#showTable();
  }

  #describe(drawn) {
    return describeFrame(this.#tree, this.#drawn.nodeOf[drawn], this.#zoomed, this.#chain(drawn));
  }

  #announce(drawn) {
    this.#table.select(this.#drawn.frame[drawn]);
    this.#callTable.select(drawn);
    announce(this.#describe(drawn));
  }

  #unfoldItem(drawn) {
    const folded = this.#drawn.folded[drawn];
    const act = () => {
      for (const node of this.#chain(drawn)) this.#unfolded.add(this.#tree.pathId[node]);
      this.refine();
    };
    return folded ? [{ text: `Show its ${folded + 1} frames`, act }] : [];
  }
}
