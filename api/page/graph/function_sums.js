// Sums by function over a tree: flat (in the function itself) and cumulative (with what it called); and searches.

import { literal } from "../base/patterns.js";

/**
 * Sums by function; `rows`: functions that occur; `changed`: where samples support that the flat value
 * changed, null if that is not known; `restFlat`: the sum of those that are not listed.
 * @typedef {{rows: Uint32Array, flat: ArrayLike<number>, cumulative: ArrayLike<number>,
 *            baselineFlat: ?ArrayLike<number>, baselineCumulative: ?ArrayLike<number>, changed: ?ArrayLike<number>,
 *            restFlat: number}} Sums
 */

/** Returns the API's sums of all that is below the tree's root, whatever the tree leaves out. @returns {Sums} */
export function exactSums({ functions }) {
  const { flat, cumulative, baselineFlat, baselineCumulative, changed, restFlat } = functions;
  const columns = [flat, cumulative, baselineFlat, baselineCumulative].filter(Boolean);
  const occurs = (row) => columns.some((column) => column[row] !== 0);
  const rows = Uint32Array.from(flat.keys()).filter(occurs);
  return { rows, flat, cumulative, baselineFlat, baselineCumulative, changed, restFlat };
}

/** Sums up the part of the tree below `root`. Recursion counts once in `cumulative`. @returns {Sums} */
export function sumFunctions(tree, root = 0) {
  const { functions, frame, baseline, childStart } = tree;
  const sums = () => new Float64Array(functions.count);
  const result = {
    flat: sums(),
    cumulative: sums(),
    baselineFlat: baseline && sums(),
    baselineCumulative: baseline && sums(),
    changed: null,
    restFlat: 0,
  };
  const occurs = new Uint8Array(functions.count);
  const open = new Uint32Array(functions.count); // how often a function is on the current path
  const path = [root];
  const nextChild = [childStart[root]];
  enter(root);
  while (path.length) {
    const node = path[path.length - 1];
    const child = nextChild[nextChild.length - 1];
    if (child < childStart[node + 1]) {
      nextChild[nextChild.length - 1]++;
      path.push(child);
      nextChild.push(childStart[child]);
      enter(child);
    } else {
      open[frame[node]]--;
      path.pop();
      nextChild.pop();
    }
  }
  return { ...result, rows: Uint32Array.from(occurs.keys()).filter((row) => occurs[row]) };

  function enter(node) {
    const row = frame[node];
    occurs[row] = 1;
    result.flat[row] += tree.self[node];
    if (baseline) result.baselineFlat[row] += baseline.self[node];
    if (open[row]++ > 0) return;
    result.cumulative[row] += tree.total[node];
    if (baseline) result.baselineCumulative[row] += baseline.total[node];
  }
}

/** Returns the widest node of a function, or -1. */
export function largestNode(tree, row) {
  let best = -1;
  for (let node = 0; node < tree.count; node++) {
    if (tree.frame[node] === row && (best < 0 || tree.width[node] > tree.width[best])) best = node;
  }
  return best;
}

/** Returns a test of names for a search, or null if it is empty. `"…"` means this exact name. Throws SyntaxError. */
export function matcher(text, isRegex) {
  if (!text) return null;
  if (isRegex) {
    const pattern = new RegExp(text, "i");
    return (name) => pattern.test(name);
  }
  if (isExact(text)) return (name) => name === text.slice(1, -1);
  const wanted = text.toLowerCase();
  return (name) => name.toLowerCase().includes(wanted);
}

/** Whether a search is for one exact name, as after a click in the table. */
export const isExact = (text) => text.length > 2 && text.startsWith('"') && text.endsWith('"');

/** Returns a search as the regular expression of the API's parameter `focus`. */
export function focusOf(text, isRegex) {
  if (isRegex) return text;
  return isExact(text) ? `^${literal(text.slice(1, -1))}$` : literal(text);
}

/** Returns which functions match by name, module or source file (never the root), or null if there is no search. */
export function matchFunctions(functions, matches) {
  if (!matches) return null;
  const { name, module, file } = functions;
  return Uint8Array.from(name, (_, row) => row > 0 && (matches(name[row]) || matches(module[row]) || matches(file[row])));
}

/** Returns how much of the tree is in or below matching functions, each part counted once. */
export function matchedTotal(tree, matched) {
  const covered = new Uint8Array(tree.count);
  let sum = 0;
  for (let node = 0; node < tree.count; node++) {
    const above = tree.parent[node];
    if (above >= 0 && covered[above]) covered[node] = 1;
    else if (matched[tree.frame[node]]) {
      covered[node] = 1;
      sum += tree.total[node];
    }
  }
  return sum;
}
