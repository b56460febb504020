// Frames that only call one other frame, drawn as one step with it. So a graph shows where stacks branch.

import { levels } from "./tree.js";

/**
 * A tree to draw, made of another one: `nodeOf` has the other's node of each node here, the innermost one of a chain;
 * `drawnOf` the node here of each of its nodes; `folded` how many frames a node has taken in;
 * `allFrames` the functions of the other tree's nodes.
 * @typedef {import("./tree.js").Tree & {nodeOf: Uint32Array, drawnOf: Uint32Array, folded: Uint32Array,
 *           allFrames: Uint32Array}} DrawnTree
 */

/** Returns the tree to draw; frames with a path ID in `unfolded` stay. @returns {DrawnTree} */
export function foldChains(tree, unfolded) {
  const { nodeOf, parent, folded, drawnOf } = walk(tree, (node) => isLink(tree, node) && !unfolded.has(tree.pathId[node]));
  return drawnTree(tree, nodeOf, parent, folded, drawnOf);
}

/** Returns the tree to draw with all its frames. @returns {DrawnTree} */
export function withAllFrames(tree) {
  const same = Uint32Array.from({ length: tree.count }, (_, node) => node);
  return { ...tree, nodeOf: same, drawnOf: same, folded: new Uint32Array(tree.count), allFrames: tree.frame };
}

/** Returns the nodes of a chain from the outermost one to `node`, which took them in. */
export function chainOf(tree, node, folded) {
  const chain = [node];
  for (let above = tree.parent[node]; chain.length <= folded; above = tree.parent[above]) chain.unshift(above);
  return chain;
}

/** Whether a node has no value of its own, and calls one function only. */
function isLink(tree, node) {
  const { childStart, self, baseline, functions, frame } = tree;
  if (node === 0 || node === tree.root || self[node] !== 0 || (baseline && baseline.self[node] !== 0)) return false;
  if (functions.kind[frame[node]] === "label") return false;
  const child = childStart[node];
  return childStart[node + 1] - child === 1 && functions.kind[frame[child]] !== "icestream";
}

/** Goes through the nodes to draw in level order. */
function walk(tree, isFolded) {
  const { childStart } = tree;
  const nodeOf = [0];
  const parent = [-1];
  const folded = [0];
  const drawnOf = new Uint32Array(tree.count);
  for (let drawn = 0; drawn < nodeOf.length; drawn++) {
    const node = nodeOf[drawn];
    for (let child = childStart[node]; child < childStart[node + 1]; child++) {
      let last = child;
      let links = 0;
      for (; isFolded(last); last = childStart[last], links++) drawnOf[last] = nodeOf.length;
      drawnOf[last] = nodeOf.length;
      nodeOf.push(last);
      parent.push(drawn);
      folded.push(links);
    }
  }
  return { nodeOf, parent, folded: Uint32Array.from(folded), drawnOf };
}

function drawnTree(tree, nodes, parents, folded, drawnOf) {
  const nodeOf = Uint32Array.from(nodes);
  const parent = Int32Array.from(parents);
  const pick = (column) => column && column.constructor.from(nodeOf, (node) => column[node]);
  const { baseline } = tree;
  return {
    ...tree,
    count: nodeOf.length,
    parent,
    ...levels(parent),
    frame: pick(tree.frame),
    x: pick(tree.x),
    width: pick(tree.width),
    total: pick(tree.total),
    self: pick(tree.self),
    pathId: pick(tree.pathId),
    cut: pick(tree.cut),
    root: drawnOf[tree.root],
    baseline: baseline && { ...baseline, total: pick(baseline.total), self: pick(baseline.self) },
    nodeOf,
    drawnOf,
    folded,
    allFrames: tree.frame,
  };
}
