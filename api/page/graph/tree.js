// The API's tree (docs/query-api.md) as typed arrays that can be drawn.
//
// Nodes stay in the API's level order: one level of the graph is one run of rows sorted by x, and the children of a run
// of rows are a run again. So a binary search finds what is under a pixel, or what a zoom shows.

/**
 * A tree to draw; n nodes in f functions. Widths and x are in the profile's unit.
 * @typedef {object} Tree
 * @property {number} count n
 * @property {Uint32Array} levelStart first row of each level, then n
 * @property {Int32Array} parent (n), -1 for the root, row 0
 * @property {Uint32Array} childStart (n + 1), children of row i are rows childStart[i] to childStart[i + 1]
 * @property {Uint32Array} frame (n), row of `functions`
 * @property {Float64Array} x (n), left edge
 * @property {Float64Array} width (n)
 * @property {Float64Array} total (n)
 * @property {Float64Array} self (n)
 * @property {Uint32Array} pathId (n), of the functions from the root to the node: the same in every answer
 * @property {number} root the node that the answer is about: everything below it is there, but what is too narrow
 * @property {?Uint8Array} cut (n), whether something was left out below a node; null if nothing was
 * @property {?Baseline} baseline null unless this is a comparison
 * @property {Functions} functions
 * @property {string} unit
 */

/**
 * `changed`: where the samples support that a node changed; null if they do not tell that at all.
 * @typedef {{total: Float64Array, self: Float64Array, scale: number, profileScale: number, changed: ?Uint8Array}} Baseline
 */
/**
 * `flat` and `cumulative` (and those of the baseline) are exact sums of what is below the tree's root, whatever was left
 * out there; `restFlat` is the sum of functions that are not listed.
 * @typedef {{count: number, name: string[], module: string[], file: string[], line: number[], kind: string[],
 *            named: number[], flat: number[], cumulative: number[], baselineFlat: ?number[],
 *            baselineCumulative: ?number[], changed: ?number[], restFlat: number, pathNumber: Uint32Array}} Functions
 */

/** Returns the Tree of an answer to merge, diff, or a trace. */
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
        profileScale: answer.scale,
        changed: nodes.changed && Uint8Array.from(nodes.changed),
      }
    : null;
  const functions = readFunctions(answer);
  const { levelStart, childStart } = levels(parent);
  const { x, width } = layOut(parent, total, baseline);
  const pathId = pathIds(parent, frame, functions.pathNumber);
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
    pathId,
    root: answer.root,
    cut: answer.cut.nodes ? cutBelow(parent, frame, functions) : null,
    baseline,
    functions,
    unit: answer.unit,
  };
}

/** Returns one function: {name, module, file, kind}. */
export function functionAt({ functions: { name, module, file, kind } }, row) {
  return { name: name[row], module: module[row], file: file[row], kind: kind[row] };
}

/** Returns the level of a node, 0 for the root. */
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

/** Returns the nodes from the root to `node`. */
export function pathTo(tree, node) {
  const path = [];
  for (let row = node; row >= 0; row = tree.parent[row]) path.push(row);
  return path.reverse();
}

/** Returns the first row in [from, to) of one level whose right edge is beyond `position`, or `to` if there is none. */
export function firstBeyond(tree, from, to, position) {
  while (from < to) {
    const middle = (from + to) >> 1;
    if (tree.x[middle] + tree.width[middle] > position) to = middle;
    else from = middle + 1;
  }
  return from;
}

/** Returns the node of a level that covers `position`, or -1. */
export function nodeAt(tree, level, position) {
  if (level < 0 || level >= tree.levelStart.length - 1) return -1;
  const end = tree.levelStart[level + 1];
  const row = firstBeyond(tree, tree.levelStart[level], end, position);
  return row < end && tree.x[row] <= position ? row : -1;
}

/** The node that a key moves to from `node` (the same node at an edge); undefined for other keys. */
export function neighbour(tree, key, node) {
  const { parent, childStart, levelStart } = tree;
  const level = depthOf(tree, node);
  if (key === "ArrowUp") return Math.max(0, parent[node]);
  if (key === "ArrowDown") return childStart[node] < childStart[node + 1] ? childStart[node] : node;
  if (key === "ArrowLeft") return node > levelStart[level] ? node - 1 : node;
  if (key === "ArrowRight") return node + 1 < levelStart[level + 1] ? node + 1 : node;
  if (key === "Home") return 0;
  return undefined;
}

/** Returns the node with a path ID (hexadecimal text), or 0, the root, if there is none. */
export function nodeOfPath(tree, text) {
  return text ? Math.max(0, tree.pathId.indexOf(parseInt(text, 16))) : 0;
}

function readFunctions({ functions, strings, kinds, rest }) {
  const text = (rows) => rows.map((row) => strings[row]);
  return {
    count: functions.name.length,
    name: text(functions.name),
    module: text(functions.module),
    file: text(functions.file),
    line: functions.line,
    kind: functions.kind.map((row) => kinds[row]),
    named: functions.named,
    flat: functions.flat,
    cumulative: functions.cumulative,
    baselineFlat: functions.baseline_flat ?? null,
    baselineCumulative: functions.baseline_cumulative ?? null,
    changed: functions.changed ?? null,
    restFlat: rest.flat,
    pathNumber: Uint32Array.from(functions.name, (name, row) =>
      ~crc32(crc32(crc32(-1, `${strings[name]}\0`), `${strings[functions.module[row]]}\0`), strings[functions.file[row]]),
    ),
  };
}

/** Returns the first row of each level, and the first child of each row, of a tree in level order. */
export function levels(parent) {
  const count = parent.length;
  const levelStart = [0];
  const childStart = new Uint32Array(count + 1).fill(count);
  let rowsDone = 0;
  for (let row = 1; row < count; row++) {
    // If the parent is in the current level, this row starts the next level.
    if (parent[row] >= levelStart[levelStart.length - 1]) levelStart.push(row);
    while (rowsDone <= parent[row]) childStart[rowsDone++] = row;
  }
  levelStart.push(count);
  return { levelStart: Uint32Array.from(levelStart), childStart };
}

/** Returns left edges and widths. In a comparison, a node is as wide as both scaled sides together. */
function layOut(parent, total, baseline) {
  const count = parent.length;
  const x = new Float64Array(count);
  const width = new Float64Array(count);
  const childrenEnd = new Float64Array(count); // right edge of a node's children so far
  for (let row = 0; row < count; row++) {
    const value = Math.max(0, total[row]);
    width[row] = baseline ? value * baseline.profileScale + Math.max(0, baseline.total[row]) * baseline.scale : value;
    const above = parent[row];
    if (above < 0) continue;
    // A correction that has arrived before its sample makes a value negative and its siblings too wide: clip them.
    x[row] = Math.min(childrenEnd[above], x[above] + width[above]);
    width[row] = Math.min(width[row], x[above] + width[above] - x[row]);
    childrenEnd[above] = x[row] + width[row];
    childrenEnd[row] = x[row];
  }
  return { x, width };
}

/** Path IDs, as api/tree/path_id.py makes them. A link carries these 32 bits, to find the frame in a later answer. */
function pathIds(parent, frame, numbers) {
  const ids = new Uint32Array(parent.length);
  for (let row = 1; row < parent.length; row++) {
    ids[row] = Math.imul(ids[parent[row]], 16777619) ^ numbers[frame[row]];
  }
  return ids;
}

const CRC_TABLE = Int32Array.from({ length: 256 }, (_, byte) => {
  for (let bit = 0; bit < 8; bit++) byte = byte & 1 ? (byte >>> 1) ^ 0xedb88320 : byte >>> 1;
  return byte;
});
const encoder = new TextEncoder();

/** CRC-32 of a text's UTF-8, after `crc` of what stands before it: first -1, at the end inverted. */
function crc32(crc, text) {
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code > 127) return encoder.encode(text.slice(at)).reduce(crcOfByte, crc);
    crc = crcOfByte(crc, code);
  }
  return crc;
}

const crcOfByte = (crc, byte) => CRC_TABLE[(crc ^ byte) & 0xff] ^ (crc >>> 8);

/** Whether a function stands for frames that were left out. */
export const isCut = ({ name, kind }, row) => name[row] === "[cut]" && kind[row] === "icestream";

/** Whether something was left out below a node: a child `[cut]` stands for it. */
function cutBelow(parent, frame, functions) {
  const stub = functions.name.findIndex((_, row) => isCut(functions, row));
  const cut = new Uint8Array(parent.length);
  for (let row = parent.length - 1; row > 0; row--) {
    if (cut[row] || frame[row] === stub) cut[parent[row]] = 1;
  }
  return cut;
}
