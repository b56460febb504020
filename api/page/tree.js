// The API's tree (docs/query-api.md) as typed arrays that can be drawn.
//
// Nodes stay in the API's level order, so one level of the graph is one run of rows, sorted by x, and the children of a
// run of rows are again one run. Finding what is under a pixel, or what a zoom shows, is a binary search.

/**
 * A tree to draw; n nodes in f functions. Widths and x are in the profile's unit.
 * @typedef {object} Tree
 * @property {number} count n
 * @property {Uint32Array} levelStart first row of each level, and n behind the last
 * @property {Int32Array} parent (n), -1 for the root, row 0
 * @property {Uint32Array} childStart (n + 1), children of row i are rows childStart[i] to childStart[i + 1]
 * @property {Uint32Array} frame (n), row of `functions`
 * @property {Float64Array} x (n), left edge
 * @property {Float64Array} width (n)
 * @property {Float64Array} total (n)
 * @property {Float64Array} self (n)
 * @property {Uint32Array} hash (n), of the names from the root to the node: the same in every answer
 * @property {?Baseline} baseline in a comparison
 * @property {Functions} functions
 * @property {string} unit
 */

/** @typedef {{total: Float64Array, self: Float64Array, scale: number, ownScale: number}} Baseline */
/** @typedef {{count: number, name: string[], module: string[], file: string[], line: number[], kind: string[], named: number[]}} Functions */

/** A Tree of an answer of merge, of diff, or of a trace. */
export function readTree(answer) {
  const { nodes } = answer;
  const count = nodes.parent.length;
  const parent = Int32Array.from(nodes.parent);
  const total = Float64Array.from(nodes.total);
  const self = Float64Array.from(nodes.self);
  const frame = Uint32Array.from(nodes.function);
  const baseline = nodes.baseline_total
    ? {
        total: Float64Array.from(nodes.baseline_total),
        self: Float64Array.from(nodes.baseline_self),
        scale: answer.baseline_scale,
        ownScale: answer.scale,
      }
    : null;
  const functions = readFunctions(answer);
  const { levelStart, childStart } = levels(parent);
  const { x, width } = layOut(parent, total, baseline);
  const hash = pathHashes(parent, frame, functions);
  return {
    count,
    levelStart,
    childStart,
    parent,
    frame,
    x,
    width,
    total,
    self,
    hash,
    baseline,
    functions,
    unit: answer.unit,
  };
}

export function depthOf(tree, node) {
  let low = 0;
  let high = tree.levelStart.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (tree.levelStart[middle] <= node) low = middle;
    else high = middle;
  }
  return low;
}

/** The nodes from the root to `node`. */
export function pathTo(tree, node) {
  const path = [];
  for (let at = node; at >= 0; at = tree.parent[at]) path.push(at);
  return path.reverse();
}

/** The first row from `from` to `to` (one level) whose right edge lies beyond `position`; `to` where there is none. */
export function firstBeyond(tree, from, to, position) {
  while (from < to) {
    const middle = (from + to) >> 1;
    if (tree.x[middle] + tree.width[middle] > position) to = middle;
    else from = middle + 1;
  }
  return from;
}

/** The node of a level that covers `position`, or -1. */
export function nodeAt(tree, level, position) {
  if (level < 0 || level >= tree.levelStart.length - 1) return -1;
  const end = tree.levelStart[level + 1];
  const found = firstBeyond(tree, tree.levelStart[level], end, position);
  return found < end && tree.x[found] <= position ? found : -1;
}

/** The node with a path hash (as hexadecimal text), or 0, the root. */
export function nodeOfHash(tree, text) {
  const wanted = parseInt(text, 16);
  const found = text ? tree.hash.indexOf(wanted) : 0;
  return found < 0 ? 0 : found;
}

function readFunctions({ functions, strings, kinds }) {
  const shown = strings.map(visible);
  const text = (rows) => rows.map((row) => shown[row]);
  return {
    count: functions.name.length,
    name: text(functions.name),
    module: text(functions.module),
    file: text(functions.file),
    line: functions.line,
    kind: functions.kind.map((row) => kinds[row]),
    named: functions.named,
  };
}

/** Text with its control and direction characters written out: a name shall not rearrange what stands beside it. */
const visible = (text) =>
  text.replace(
    /[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu,
    (char) => `\\u{${char.codePointAt(0).toString(16)}}`,
  );

function levels(parent) {
  const count = parent.length;
  const levelStart = [0];
  const childStart = new Uint32Array(count + 1).fill(count);
  let filled = 0;
  for (let row = 1; row < count; row++) {
    // A parent in the level being read means that this row begins the next one.
    if (parent[row] >= levelStart[levelStart.length - 1]) levelStart.push(row);
    while (filled <= parent[row]) childStart[filled++] = row;
  }
  levelStart.push(count);
  return { levelStart: Uint32Array.from(levelStart), childStart };
}

/** Left edges and widths; in a comparison a node is as wide as both sides together, each scaled. */
function layOut(parent, total, baseline) {
  const count = parent.length;
  const x = new Float64Array(count);
  const width = new Float64Array(count);
  const filled = new Float64Array(count); // how far the children of a node reach
  for (let row = 0; row < count; row++) {
    const own = Math.max(0, total[row]);
    width[row] = baseline ? own * baseline.ownScale + Math.max(0, baseline.total[row]) * baseline.scale : own;
    const above = parent[row];
    if (above < 0) continue;
    // Corrections in flight can make a value negative and its siblings too wide: nothing leaves its parent.
    x[row] = Math.min(filled[above], x[above] + width[above]);
    width[row] = Math.min(width[row], x[above] + width[above] - x[row]);
    filled[above] = x[row] + width[row];
    filled[row] = x[row];
  }
  return { x, width };
}

/** FNV-1a over the names on the path: 32 bits, which a link carries and which find the frame in a later answer. */
function pathHashes(parent, frame, functions) {
  const ofFunction = Uint32Array.from(functions.name, (name, row) => fnv(`${name}\0${functions.module[row]}`));
  const hash = new Uint32Array(parent.length);
  for (let row = 0; row < parent.length; row++) {
    const above = parent[row] < 0 ? 0x811c9dc5 : hash[parent[row]];
    hash[row] = Math.imul(above ^ ofFunction[frame[row]], 0x01000193) ^ (above >>> 15);
  }
  return hash;
}

function fnv(text) {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return hash >>> 0;
}
