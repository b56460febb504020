// The legend below the graph: kinds of code in a profile, changes in a comparison.

import { byId, element } from "../base/dom.js";
import { formatShare } from "../base/format.js";
import { changePalette, kindLegend } from "./colours.js";

/**
 * @param {object} sums of functions (function_sums.js)
 * @param {number} whole the value that is 100 %
 * @param {() => void} toggleColours changes between red and green, and blue and orange
 */
export function showLegend(tree, sums, whole, blueOrange, toggleColours) {
  const items = tree.baseline ? changeItems(blueOrange, toggleColours) : kindItems(tree, sums, whole);
  byId("legend").replaceChildren(...items);
}

function kindItems(tree, sums, whole) {
  const share = (value) => element("span", { class: "share" }, formatShare(value, whole));
  return kindLegend(tree.functions, sums).map(({ title, value, colour }) =>
    element("li", {}, swatch(colour), `${title} `, share(value)),
  );
}

function changeItems(blueOrange, toggleColours) {
  const { fill } = changePalette(blueOrange);
  const properties = { type: "button", id: "colours", "aria-pressed": String(blueOrange), onclick: toggleColours };
  return [
    element("li", {}, "less ", ...fill.map(swatch), " more"),
    element("li", {}, "width: both sides together"),
    element("li", {}, element("button", properties, "blue and orange")),
  ];
}

function swatch(colour) {
  const square = element("span", { class: "swatch", "aria-hidden": "true" });
  square.style.background = colour;
  return square;
}
