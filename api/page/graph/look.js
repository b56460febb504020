// What the frames of a graph look like: colours and labels, of a profile or of a comparison.

import { changeOf, formatChange, sides } from "./change.js";
import { changeColour, changePalette, isSame, kindColours } from "./colours.js";

/**
 * @typedef {object} Look
 * @property {import("./colours.js").Palette} palette
 * @property {Uint8Array} colour (n), index into the palette by node
 * @property {?Uint8Array} matched by function; null if there is no search
 * @property {(node: number) => string} label
 */

/** @returns {Look} `matched` by function, or null; `blueOrange`: colours of changes that everybody can tell apart */
export function makeLook(tree, matched, blueOrange) {
  const { functions, frame, baseline } = tree;
  const name = (node) => functions.name[frame[node]];
  if (!baseline) {
    const { palette, ofFunction } = kindColours(functions);
    return { palette, colour: Uint8Array.from(frame, (row) => ofFunction[row]), matched, label: name };
  }
  return {
    palette: changePalette(blueOrange),
    colour: Uint8Array.from(frame, (_, node) => changeColour(changeOf(...sidesOf(tree, node)))),
    matched,
    label: (node) => {
      const [now, before] = sidesOf(tree, node);
      return isSame(changeOf(now, before)) ? name(node) : `${formatChange(now, before)} · ${name(node)}`;
    },
  };
}

/** Both sides of a node's total in a comparison, scaled. */
export const sidesOf = (tree, node) => sides(tree.baseline, tree.total[node], tree.baseline.total[node]);
