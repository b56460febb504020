// The panel of graph and table, the same for a profile, a comparison and a request: search, zoom, path, legend.

import { changeColour, changePalette, isSame, kindColours, kindLegend } from "./colours.js";
import { changeOf, formatChange, sides } from "./change.js";
import { byId, debounce, element, onSchemeChange } from "./dom.js";
import { formatShare, formatValue } from "./format.js";
import { isExact, largestNode, matchedTotal, matcher, matchFunctions, sumFunctions } from "./functions.js";
import { Icicle } from "./icicle.js";
import { FunctionTable } from "./table.js";
import { nodeOfHash, pathTo } from "./tree.js";

const CRUMBS_SHOWN = 5;

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

  /** Shows another tree (tree.js) with the search, zoom and order of the state. */
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

  /** Follows what changed in the state without another query. */
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
    const again = this.#state.values.search === exact;
    this.#state.update({ search: again ? "" : exact, regex: "" }, { replace: true });
    if (!again) this.icicle.reveal(largestNode(this.#tree, row));
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
    const tree = this.#tree;
    const { functions, frame, baseline } = tree;
    const label = (node) => functions.name[frame[node]];
    if (!baseline) {
      const { palette, ofFunction } = kindColours(functions);
      return { palette, colour: Uint8Array.from(frame, (row) => ofFunction[row]), matched: this.#matched, label };
    }
    return {
      palette: changePalette(this.#state.values.colours === "blue-orange"),
      colour: Uint8Array.from(frame, (_, node) => changeColour(changeOf(...this.#sidesOf(node)))),
      matched: this.#matched,
      label: (node) => {
        const [now, before] = this.#sidesOf(node);
        return isSame(changeOf(now, before)) ? label(node) : `${formatChange(now, before)} · ${label(node)}`;
      },
    };
  }

  #sidesOf(node) {
    return sides(this.#tree.baseline, this.#tree.total[node], this.#tree.baseline.total[node]);
  }

  #describe(node) {
    const { functions, frame, total, self, baseline, unit } = this.#tree;
    const row = frame[node];
    const line = functions.line[row] ? `:${functions.line[row]}` : "";
    const amount = (value, whole) => `${formatValue(value, unit)} · ${formatShare(value, whole)}`;
    const rows = [
      ["module", functions.module[row]],
      ["source", functions.file[row] && functions.file[row] + line],
      ["cumulative", amount(total[node], total[0])],
      ["flat", amount(self[node], total[0])],
    ];
    if (this.#zoomed !== 0 && !baseline) rows.push(["of the zoom", formatShare(total[node], total[this.#zoomed])]);
    if (baseline) {
      rows.push(["baseline", amount(baseline.total[node], baseline.total[0])]);
      rows.push(["change", formatChange(...this.#sidesOf(node))]);
    }
    if (functions.kind[row] === "jit") rows.push(["kind", "JIT or interpreter"]);
    else if (functions.kind[row] !== "icestream" && !functions.named[row])
      rows.push(["kind", "no symbols for this address"]);
    return { title: functions.name[row], rows: rows.filter(([, value]) => value) };
  }

  #announce(node) {
    const { title, rows } = this.#describe(node);
    byId("announcer").textContent = [title, ...rows.map(([name, value]) => `${name} ${value}`)].join(", ");
  }

  #showCrumbs() {
    const path = pathTo(this.#tree, this.#zoomed);
    const shown = path.length > CRUMBS_SHOWN + 1 ? [path[0], ...path.slice(-CRUMBS_SHOWN)] : path;
    const items = shown.map((node) => {
      const name = node === 0 ? "all" : this.#tree.functions.name[this.#tree.frame[node]];
      const current = node === this.#zoomed;
      return element(
        "li",
        {},
        element(
          "button",
          { type: "button", title: name, "aria-current": current && "true", onclick: () => this.#askZoom(node) },
          name,
        ),
      );
    });
    if (shown.length < path.length) items.splice(1, 0, element("li", { class: "skipped" }, "…"));
    byId("crumbs").replaceChildren(...items);
    byId("reset").hidden = this.#zoomed === 0;
  }

  #showLegend() {
    byId("legend").replaceChildren(...(this.#tree.baseline ? this.#changeLegend() : this.#kindsLegend()));
  }

  #kindsLegend() {
    const { functions, total } = this.#tree;
    return kindLegend(this.#tree, functions).map(({ title, value, colour }) =>
      element("li", {}, swatch(colour), `${title} `, element("span", { class: "share" }, formatShare(value, total[0]))),
    );
  }

  #changeLegend() {
    const blueOrange = this.#state.values.colours === "blue-orange";
    const { fill } = changePalette(blueOrange);
    const toggle = () => this.#state.update({ colours: blueOrange ? "" : "blue-orange" }, { replace: true });
    return [
      element("li", {}, "less ", ...fill.map(swatch), " more"),
      element("li", {}, "width: both sides together"),
      element(
        "li",
        {},
        element(
          "button",
          { type: "button", id: "colours", "aria-pressed": String(blueOrange), onclick: toggle },
          "blue and orange",
        ),
      ),
    ];
  }

  #showTable() {
    const { search, regex, sort } = this.#state.values;
    const one = !regex && isExact(search); // a click in the table marks its row, and leaves the others where they are
    this.#table.show({
      tree: this.#tree,
      sums: this.#sums,
      filter: one ? null : this.#matched,
      marked: one ? this.#matched : null,
      sort,
      whole: this.#tree.total[0],
    });
  }
}

function swatch(colour) {
  const square = element("span", { class: "swatch", "aria-hidden": "true" });
  square.style.background = colour;
  return square;
}
