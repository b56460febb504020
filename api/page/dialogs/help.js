// The keys of the page.

import { showDialog } from "../base/popups.js";
import { element } from "../base/dom.js";

const KEYS = [
  ["Everywhere", [
    ["?", "this help"],
    ["/", "search functions"],
    ["r", "ask the API again"],
    ["i", "turn stacks round"],
    ["c", "draw chains of frames as one step, or each frame"],
    ["f", "show my code only, or all frames"],
    ["t", "table of functions, or the call tree"],
    ["Backspace", "zoom out to the parent"],
  ]],
  ["Graph", [
    ["← → ↑ ↓", "go to another frame"],
    ["Enter", "zoom in"],
    ["Escape", "zoom out"],
    ["m, right click, long press", "menu: copy, focus, hide, callers and callees, lines, compare"],
    ["Home", "go to the root"],
  ]],
  ["Call tree", [
    ["→ ←", "open and close a row, go to its child or parent"],
    ["Space, click", "open or close a row"],
    ["Enter, Escape, m", "as in the graph"],
  ]],
  ["Table", [
    ["Click", "highlight the function in the graph"],
    ["Double click", "zoom to its widest frame"],
    ["Right click, menu key", "the same menu"],
  ]],
  ["Timeline", [
    ["← →", "go to another step; with Shift, select"],
    ["Enter", "show the selected time"],
    ["+ −", "half or twice the range"],
    ["Escape", "take the selection back"],
  ]],
]; // prettier-ignore

export function showHelp() {
  const rows = KEYS.flatMap(([place, keys]) => [
    element("tr", {}, element("th", { colspan: "2", scope: "rowgroup" }, place)),
    ...keys.map(([key, text]) => element("tr", {}, element("td", { class: "text" }, element("kbd", {}, key)), element("td", { class: "text" }, text))),
  ]);
  showDialog("Keys", element("table", { class: "keys" }, element("tbody", {}, ...rows)));
}
