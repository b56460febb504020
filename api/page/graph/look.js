// What the frames of a graph look like: colours and labels, of a profile or of a comparison.

import { visible } from "../base/dom.js";
import { changeOf, formatChange, sides } from "./change.js";
import { changeColour, changePalette, isSame, kindColours } from "./colours.js";

/**
 * @typedef {object} Look
 * @property {import("./colours.js").Palette} palette
 * @property {Uint8Array} colour (n), index into the palette by node
 * @property {?Uint8Array} matched (n), by node; null if there is no search
 * @property {(node: number) => string} label
 */

/**
 * @param {import("./chains.js").DrawnTree} tree
 * @param {?Uint8Array} matchedFunctions
 * @param {boolean} blueOrange colours of changes that everybody can tell apart
 * @returns {Look}
 */
export function makeLook(tree, matchedFunctions, blueOrange) {
  const { functions, frame, baseline } = tree;
  const matched = matchedFunctions && matchedNodes(tree, matchedFunctions);
  const name = (node) => visible(nameOf(tree, node));
  if (!baseline) {
    const { palette, ofFunction } = kindColours(functions);
    return { palette, colour: Uint8Array.from(frame, (row) => ofFunction[row]), matched, label: name };
  }
  return {
    palette: changePalette(blueOrange),
    colour: Uint8Array.from(frame, (_, node) => changeColour(isSupported(tree, node) ? changeOf(...sidesOf(tree, node)) : 0)),
    matched,
    label: (node) => {
      const [now, before] = sidesOf(tree, node);
      return isSame(changeOf(now, before)) || !isSupported(tree, node) ? name(node) : `${formatChange(now, before)} · ${name(node)}`;
    },
  };
}

/** A node's function, and how many frames are folded into it: "serve (+4)". */
export function nameOf({ functions, frame, folded }, node) {
  const own = shortName(functions.name[frame[node]]);
  return folded[node] ? `${own} (+${folded[node]})` : own;
}

/** The base name of a file or module; other names as they are. */
const shortName = (name) => (name.startsWith("/") ? name.slice(name.lastIndexOf("/") + 1) : name);

/** Whether a search matches a node of the drawn tree, or a frame that is folded into it. */
function matchedNodes({ count, drawnOf, allFrames }, matchedFunctions) {
  const matched = new Uint8Array(count);
  drawnOf.forEach((drawn, node) => {
    if (matchedFunctions[allFrames[node]]) matched[drawn] = 1;
  });
  return matched;
}

/** Whether the samples support that a node changed; true where they do not tell. */
export const isSupported = ({ baseline: { changed } }, node) => !changed || changed[node] !== 0;

/** Both sides of a node's total in a comparison, scaled. */
export const sidesOf = (tree, node) => sides(tree.baseline, tree.total[node], tree.baseline.total[node]);
