// The path from the root to the zoomed frame, as buttons above the graph.

import { byId, element } from "../base/dom.js";
import { pathTo } from "./tree.js";

const CRUMBS_SHOWN = 5;

/** @param {(node: number) => void} zoom */
export function showCrumbs(tree, zoomed, zoom) {
  const path = pathTo(tree, zoomed);
  const shown = path.length > CRUMBS_SHOWN + 1 ? [path[0], ...path.slice(-CRUMBS_SHOWN)] : path;
  const items = shown.map((node) => {
    const name = node === 0 ? "all" : tree.functions.name[tree.frame[node]];
    const properties = { type: "button", title: name, "aria-current": node === zoomed && "true" };
    return element("li", {}, element("button", { ...properties, onclick: () => zoom(node) }, name));
  });
  if (shown.length < path.length) items.splice(1, 0, element("li", { class: "skipped" }, "…"));
  byId("crumbs").replaceChildren(...items);
  byId("reset").hidden = zoomed === 0;
}
