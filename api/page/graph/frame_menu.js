// What can be done with a function, from the graph, the table or the sandwich.

import { visible } from "../base/dom.js";
import { showMenu } from "../base/popups.js";
import { either, patternOf } from "../base/patterns.js";
import { showLines } from "../dialogs/lines.js";
import { NOWHERE } from "../state.js";

/**
 * @param {import("../state.js").PageState} state
 * @param {{name: string, module: string, file: string, kind: string}} shown
 * @param {{text: string, act: () => void}[]} more items of the place that the menu was opened at
 */
export function showFrameMenu(state, shown, x, y, more = []) {
  const { name, module, file, kind } = shown;
  const { by, hide, ignore, view } = state.values;
  const items = [{ text: "Copy name", act: () => copy(visible(name)) }, ...more];
  if (kind !== "icestream" && kind !== "label") {
    const pattern = patternOf(name, by);
    const select = (changes) => state.update({ ...NOWHERE, ...changes });
    items.push(
      { text: "Focus: only stacks with it", act: () => select({ focus: pattern }) },
      { text: "Ignore: stacks without it", act: () => select({ ignore: either(ignore, pattern) }) },
      { text: "Hide it from stacks", act: () => select({ hide: either(hide, pattern) }) },
    );
    // Lines and callers are those of what is selected: of a comparison, its first side. An open request has its own samples.
    if (view !== "requests")
      items.push({ text: "Callers and callees", act: () => state.update({ view: "profile", at: "", function: name, module, file }) });
    if (view !== "requests" && by === "function")
      items.push({ text: "Source lines", act: () => showLines(state.values, shown) });
    if (view === "profile")
      items.push({ text: "Open in compare", act: () => select({ view: "compare", focus: pattern, group_by: "" }) });
  }
  showMenu(x, y, name, items);
}

/** Copies a text. Pages that are not on the same machine nor encrypted have no clipboard: they copy a selection. */
async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text).catch(() => {});
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}
