// Frames that only call one other frame, drawn as one step with it. So a graph shows where stacks branch.

import { levels } from "./tree.js";

/**
 * A tree to draw, made of another one: `nodeOf` has the other's node of each node here, the innermost one of a chain;
 * `drawnOf` the node here of each of its nodes; `folded` how many frames a node has taken in;
 * `allFrames` the functions of the other tree's nodes.
 * @typedef {import("./tree.js").Tree & {nodeOf: Uint32Array, drawnOf: Uint32Array, folded: Uint32Array,
 *           allFrames: Uint32Array}} DrawnTree
 */

/**
 * Returns the tree to draw; frames with a path ID in `unfolded` stay. A chain is drawn as its innermost function: that is
 * its last node, or the first one where stacks are `inverted`.
 * @returns {DrawnTree}
 */
export function foldChains(tree, unfolded, inverted) {
  const isFolded = (node) => isLink(tree, node) && !unfolded.has(tree.pathId[node]);
  const { nodeOf, parent, folded, drawnOf } = walk(tree, isFolded, inverted);
  return drawnTree(tree, nodeOf, parent, folded, drawnOf);
}

/** Returns the tree to draw with all its frames. @returns {DrawnTree} */
export function withAllFrames(tree) {
  const same = Uint32Array.from({ length: tree.count }, (_, node) => node);
  return { ...tree, nodeOf: same, drawnOf: same, folded: new Uint32Array(tree.count), allFrames: tree.frame };
}

/** Returns the nodes of a chain, `node`, which took the others in, last. */
export function chainOf(tree, node, folded, inverted) {
  const next = inverted ? tree.childStart : tree.parent;
  const chain = [node];
  for (let other = next[node]; chain.length <= folded; other = next[other]) chain.unshift(other);
  return chain;
}

/** Whether a node has no value of its own, and calls one function only. */
function isLink(tree, node) {
  const { childStart, self, baseline, functions, frame } = tree;
  if (node === 0 || self[node] !== 0 || (baseline && baseline.self[node] !== 0)) return false;
  if (functions.kind[frame[node]] === "label") return false;
  const child = childStart[node];
  return childStart[node + 1] - child === 1 && functions.kind[frame[child]] !== "icestream";
}

/** Goes through the nodes to draw in level order. */
function walk(tree, isFolded, inverted) {
  const { childStart } = tree;
  const nodeOf = [0];
  const lastOf = [0];
  const parent = [-1];
  const folded = [0];
  const drawnOf = new Uint32Array(tree.count);
  for (let drawn = 0; drawn < nodeOf.length; drawn++) {
    const node = lastOf[drawn];
    for (let child = childStart[node]; child < childStart[node + 1]; child++) {
      let last = child;
      let links = 0;
      for (; isFolded(last); last = childStart[last], links++) drawnOf[last] = nodeOf.length;
      drawnOf[last] = nodeOf.length;
      nodeOf.push(inverted ? child : last);
      lastOf.push(last);
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
    baseline: baseline && { ...baseline, total: pick(baseline.total), self: pick(baseline.self), changed: pick(baseline.changed) },
    nodeOf,
    drawnOf,
    folded,
    allFrames: tree.frame,
  };
}
