// The graph and the table of functions, for a profile, a comparison or a request: search, zoom, path, legend.

import { byId, debounce, element, onSchemeChange } from "../base/dom.js";
import { formatShare } from "../base/format.js";
import { CallTable } from "./call_table.js";
import { chainOf, foldChains, withAllFrames } from "./chains.js";
import { announce, describeFrame } from "./description.js";
import { showFrameMenu } from "./frame_menu.js";
import {
  exactSums,
  focusOf,
  isExact,
  largestNode,
  matchedTotal,
  matcher,
  matchFunctions,
  sumFunctions,
} from "./function_sums.js";
import { FunctionTable } from "./function_table.js";
import { Icicle, ZOOM_MS } from "./icicle.js";
import { showLegend } from "./legend.js";
import { makeLook } from "./look.js";
import { functionAt, nodeOfPath, pathTo } from "./tree.js";

const PICTURE_MS = 20;
const CRUMBS_SHOWN = 5;

export class Graph {
  #state;
  #tree = null;
  #drawn = null; // the tree as it is drawn: chains are one step (chains.js)
  #unfolded = new Set(); // path IDs of frames that are drawn by themselves
  #zoomed = 0;
  #sums = null;
  #matched = null;
  #look = null;
  #table;
  #callTable;
  #askMatched;
  #asking = new AbortController();
  #showingSums = 0; // timer of the table and the legend, which follow a zoom

  /** @param {(focus: string, signal: AbortSignal) => Promise<number>} askMatched sums what a regular expression matches */
  constructor(state, askMatched) {
    this.#state = state;
    this.#askMatched = askMatched;
    this.icicle = new Icicle(byId("icicle"), {
      describe: (drawn) => this.#describe(drawn),
      zoom: (drawn) => this.#askZoom(this.#drawn.nodeOf[drawn]),
      announce: (drawn) => this.#announce(drawn),
      menu: (drawn, x, y) => this.#showMenu(drawn, x, y),
    });
    this.#table = new FunctionTable(byId("table"), {
      sort: (key) => state.update({ sort: key }, { replace: true }),
      highlight: (row) => this.#highlight(row),
      zoom: (row) => this.#askZoom(largestNode(this.#tree, row)),
      only: (only) => state.update({ only }, { replace: true }),
      menu: (row, x, y) => showFrameMenu(state, functionAt(this.#tree, row), x, y),
    });
    this.#callTable = new CallTable(byId("table"), {
      zoom: (drawn) => this.#askZoom(this.#drawn.nodeOf[drawn]),
      menu: (drawn, x, y) => this.#showMenu(drawn, x, y),
    });
    const search = debounce(() => state.update({ search: byId("search").value }, { replace: true }), 120);
    byId("search").addEventListener("input", search);
    byId("search").addEventListener("keydown", (event) => event.key === "Escape" && this.#clearSearch());
    byId("regex").addEventListener("click", () =>
      state.update({ regex: state.values.regex ? "" : "1" }, { replace: true }),
    );
    onSchemeChange(() => this.#tree && this.#recolour());
  }

  /** Shows a tree (tree.js) with the search, zoom and order of the state. */
  show(tree) {
    this.#tree = tree;
    this.#zoomTo(nodeOfPath(tree, this.#state.values.at));
    this.#search();
    this.#draw();
    this.#showCrumbs();
    this.#showLegend();
    this.#showTable();
  }

  /** Shows changes of the state. Returns whether a new query would show more. */
  refine(changed) {
    this.#showSearchField();
    if (!this.#tree) return false;
    const { at } = this.#state.values;
    if (changed.has("at")) {
      this.#zoomTo(nodeOfPath(this.#tree, at));
      this.icicle.zoomTo(this.#drawn.drawnOf[this.#zoomed]);
      this.#showCrumbs();
      // Showing these at once would hold up the animation of the zoom.
      this.#follow(ZOOM_MS, [() => this.#sumsHere, () => this.#showLegend(), () => this.#showTable()]);
    }
    if (changed.has("search") || changed.has("regex")) this.#search();
    if (changed.has("chains")) this.#draw();
    if (changed.has("search") || changed.has("regex") || changed.has("colours")) this.#recolour();
    if (!changed.has("at")) this.#showTable();
    const isUnknown = at && this.#zoomed === 0;
    const isPart = this.#zoomed !== this.#tree.root;
    return changed.has("at") && (isUnknown || (isPart && (this.#isCut(this.#zoomed) || Boolean(this.#tree.baseline))));
  }

  /** Returns a node's position and size in the window, in pixels. */
  screenBox(node) {
    return this.icicle.screenBox(this.#drawn.drawnOf[node]);
  }

  /** The pixels that the graph is drawn with. */
  get width() {
    return Math.round((byId("icicle").clientWidth || window.innerWidth) * window.devicePixelRatio);
  }

  get tree() {
    return this.#tree;
  }

  #draw() {
    const all = this.#state.values.chains === "all";
    this.#drawn = all ? withAllFrames(this.#tree) : foldChains(this.#tree, this.#unfolded, this.#inverted);
    this.#look = this.#makeLook();
    this.icicle.show(this.#drawn, this.#look, this.#drawn.drawnOf[this.#zoomed]);
  }

  #showMenu(drawn, x, y) {
    const node = this.#drawn.nodeOf[drawn];
    const chain = this.#chain(drawn);
    const items = [{ text: "Zoom in", act: () => this.#askZoom(node) }];
    if (chain.length > 1) items.push({ text: `Show its ${chain.length} frames`, act: () => this.#unfold(chain) });
    this.#select(drawn);
    showFrameMenu(this.#state, functionAt(this.#tree, this.#tree.frame[node]), x, y, items);
  }

  #chain(drawn) {
    return chainOf(this.#tree, this.#drawn.nodeOf[drawn], this.#drawn.folded[drawn], this.#inverted);
  }

  #unfold(chain) {
    for (const node of chain) this.#unfolded.add(this.#tree.pathId[node]);
    this.#draw();
    this.#showTable();
  }

  zoomOut() {
    if (this.#tree) this.#askZoom(Math.max(0, this.#tree.parent[this.#zoomed]));
  }

  #askZoom(node) {
    if (node < 0) return;
    this.#state.update({ at: node === 0 ? "" : this.#tree.pathId[node].toString(16).padStart(8, "0") });
  }

  #zoomTo(node) {
    this.#zoomed = node;
    this.#sums = null;
    clearTimeout(this.#showingSums);
  }

  /** Does one thing after another, with time for a picture before each. The next zoom ends it. */
  #follow(after, [first, ...rest]) {
    this.#showingSums = setTimeout(() => {
      first();
      if (rest.length) this.#follow(PICTURE_MS, rest);
    }, after);
  }

  /** The sums of functions below the zoomed node, made when they are needed. */
  get #sumsHere() {
    const isWhole = this.#zoomed === this.#tree.root;
    this.#sums ??= isWhole ? exactSums(this.#tree) : sumFunctions(this.#tree, this.#zoomed);
    return this.#sums;
  }

  #isCut(node) {
    return Boolean(this.#tree.cut?.[node]);
  }

  #highlight(row) {
    const exact = `"${this.#tree.functions.name[row]}"`;
    const isHighlighted = this.#state.values.search === exact;
    this.#state.update({ search: isHighlighted ? "" : exact, regex: "" }, { replace: true });
    const widest = largestNode(this.#tree, row);
    if (!isHighlighted && widest >= 0) this.icicle.reveal(this.#drawn.drawnOf[widest]);
  }

  #clearSearch() {
    byId("search").value = "";
    this.#state.update({ search: "" }, { replace: true });
  }

  #search() {
    const { search, regex } = this.#state.values;
    this.#showSearchField();
    let problem = "";
    try {
      this.#matched = matchFunctions(this.#tree.functions, matcher(search, regex));
    } catch (error) {
      this.#matched = null;
      problem = error.message;
    }
    byId("search").classList.toggle("wrong", problem !== "");
    byId("matched").title = problem;
    byId("matched").textContent = problem ? "not a regular expression" : "";
    this.#asking.abort();
    if (this.#matched) this.#showMatched();
  }

  /** Shows how much of all stacks the search matches. The API sums up what the tree has not got. */
  async #showMatched() {
    const whole = this.#tree.total[0];
    const drawn = matchedTotal(this.#tree, this.#matched);
    const isAll = !this.#tree.cut;
    byId("matched").textContent = `${isAll ? "" : "at least "}${formatShare(drawn, whole)} matched`;
    // The API takes one focus only.
    if (isAll || this.#state.values.focus) return;
    this.#asking = new AbortController();
    const { signal } = this.#asking;
    const { search, regex } = this.#state.values;
    try {
      const matched = await this.#askMatched(focusOf(search, regex), signal);
      if (!signal.aborted) byId("matched").textContent = `${formatShare(matched, whole)} matched`;
    } catch (error) {
      if (!signal.aborted) byId("matched").title = error.message;
    }
  }

  #showSearchField() {
    const { search, regex } = this.#state.values;
    if (document.activeElement !== byId("search") || !search) byId("search").value = search;
    byId("regex").setAttribute("aria-pressed", String(Boolean(regex)));
  }

  #recolour() {
    this.#look = this.#makeLook();
    this.icicle.setLook(this.#look);
    this.#showLegend();
  }

  #makeLook() {
    return makeLook(this.#drawn, this.#matched, this.#blueOrange);
  }

  get #inverted() {
    return this.#state.values.invert === "true";
  }

  get #blueOrange() {
    return this.#state.values.colours === "blue-orange";
  }

  #describe(drawn) {
    return describeFrame(this.#tree, this.#drawn.nodeOf[drawn], this.#zoomed, this.#chain(drawn));
  }

  #announce(drawn) {
    this.#select(drawn);
    announce(this.#describe(drawn));
  }

  /** Marks the row of a node in the table that is shown. */
  #select(drawn) {
    this.#table.select(this.#drawn.frame[drawn]);
    this.#callTable.select(drawn);
  }

  #showCrumbs() {
    showCrumbs(this.#tree, this.#zoomed, (node) => this.#askZoom(node));
  }

  #showLegend() {
    const toggle = () => this.#state.update({ colours: this.#blueOrange ? "" : "blue-orange" }, { replace: true });
    showLegend(this.#tree, this.#sumsHere, this.#tree.total[this.#zoomed], this.#blueOrange, toggle);
  }

  #showTable() {
    const { search, regex, sort, only, table } = this.#state.values;
    if (table === "calls") {
      const zoomed = this.#drawn.drawnOf[this.#zoomed];
      return this.#callTable.show({ tree: this.#drawn, zoomed, matched: this.#look.matched, inverted: this.#inverted });
    }
    // A click in the table searches for one exact name: it marks that row, and keeps the others.
    const exact = !regex && isExact(search);
    return this.#table.show({
      tree: this.#tree,
      sums: this.#sumsHere,
      filter: exact ? null : this.#matched,
      marked: exact ? this.#matched : null,
      sort,
      only,
      whole: this.#tree.total[0],
      values: this.#state.values,
    });
  }
}

/** Shows the path from the root to the zoomed frame, as buttons. */
function showCrumbs(tree, zoomed, zoom) {
  const path = pathTo(tree, zoomed);
  const shown = path.length > CRUMBS_SHOWN + 1 ? [path[0], ...path.slice(-CRUMBS_SHOWN)] : path;
  const items = shown.map((node) => {
    const name = tree.functions.name[tree.frame[node]];
    const properties = { type: "button", title: name, "aria-current": node === zoomed && "true" };
    return element("li", {}, element("button", { ...properties, onclick: () => zoom(node) }, name));
  });
  if (shown.length < path.length) items.splice(1, 0, element("li", { class: "skipped" }, "…"));
  byId("crumbs").replaceChildren(...items);
  byId("reset").hidden = zoomed === 0;
}
