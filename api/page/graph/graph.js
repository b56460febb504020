// The graph and the table of functions, for a profile, a comparison or a request: search, zoom, path, legend.

import { byId, debounce, onSchemeChange } from "../base/dom.js";
import { formatShare } from "../base/format.js";
import { showCrumbs } from "./crumbs.js";
import { describeFrame } from "./description.js";
import { isExact, largestNode, matchedTotal, matcher, matchFunctions, sumFunctions } from "./function_sums.js";
import { FunctionTable } from "./function_table.js";
import { Icicle } from "./icicle.js";
import { showLegend } from "./legend.js";
import { makeLook } from "./look.js";
import { nodeOfHash } from "./tree.js";

export class Graph {
  #state;
  #tree = null;
  #zoomed = 0;
  #sums = null;
  #matched = null;
  #look = null;
  #table;

  constructor(state) {
    this.#state = state;
    this.icicle = new Icicle(byId("icicle"), {
      describe: (node) => this.#describe(node),
      zoom: (node) => this.#askZoom(node),
      announce: (node) => this.#announce(node),
    });
    this.#table = new FunctionTable(byId("table"), {
      sort: (key) => state.update({ sort: key }, { replace: true }),
      highlight: (row) => this.#highlight(row),
      zoom: (row) => this.#askZoom(largestNode(this.#tree, row)),
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
    this.#zoomed = nodeOfHash(tree, this.#state.values.at);
    this.#sums = sumFunctions(tree, this.#zoomed);
    this.#search();
    this.#look = this.#makeLook();
    this.icicle.show(tree, this.#look, this.#zoomed);
    this.#showCrumbs();
    this.#showLegend();
    this.#showTable();
  }

  /** Shows changes of the state that need no new query. */
  refine(changed) {
    this.#showSearchField();
    if (!this.#tree) return;
    if (changed.has("at")) {
      this.#zoomed = nodeOfHash(this.#tree, this.#state.values.at);
      this.#sums = sumFunctions(this.#tree, this.#zoomed);
      this.icicle.zoomTo(this.#zoomed);
      this.#showCrumbs();
    }
    if (changed.has("search") || changed.has("regex")) this.#search();
    if (changed.has("search") || changed.has("regex") || changed.has("colours")) this.#recolour();
    this.#showTable();
  }

  get tree() {
    return this.#tree;
  }

  #askZoom(node) {
    if (node < 0) return;
    this.#state.update({ at: node === 0 ? "" : this.#tree.hash[node].toString(16).padStart(8, "0") });
  }

  #highlight(row) {
    const exact = `"${this.#tree.functions.name[row]}"`;
    const isHighlighted = this.#state.values.search === exact;
    this.#state.update({ search: isHighlighted ? "" : exact, regex: "" }, { replace: true });
    if (!isHighlighted) this.icicle.reveal(largestNode(this.#tree, row));
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
    const share = this.#matched && formatShare(matchedTotal(this.#tree, this.#matched), this.#tree.total[0]);
    byId("matched").textContent = problem ? "not a regular expression" : share ? `${share} matched` : "";
    byId("matched").title = problem;
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
    return makeLook(this.#tree, this.#matched, this.#blueOrange);
  }

  get #blueOrange() {
    return this.#state.values.colours === "blue-orange";
  }

  #describe(node) {
    return describeFrame(this.#tree, node, this.#zoomed);
  }

  #announce(node) {
    const { title, rows } = this.#describe(node);
    byId("announcer").textContent = [title, ...rows.map(([name, value]) => `${name} ${value}`)].join(", ");
  }

  #showCrumbs() {
    showCrumbs(this.#tree, this.#zoomed, (node) => this.#askZoom(node));
  }

  #showLegend() {
    const toggle = () => this.#state.update({ colours: this.#blueOrange ? "" : "blue-orange" }, { replace: true });
    showLegend(this.#tree, this.#blueOrange, toggle);
  }

  #showTable() {
    const { search, regex, sort } = this.#state.values;
    // A click in the table searches for one exact name: it marks that row, and keeps the others.
    const exact = !regex && isExact(search);
    this.#table.show({
      tree: this.#tree,
      sums: this.#sums,
      filter: exact ? null : this.#matched,
      marked: exact ? this.#matched : null,
      sort,
      whole: this.#tree.total[0],
    });
  }
}
