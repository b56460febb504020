// What the tooltip and screen readers say about a frame.

import { byId } from "../base/dom.js";
import { formatShare, formatValue } from "../base/format.js";
import { formatChange } from "./change.js";
import { isSupported, sidesOf } from "./look.js";

const CHAIN_SHOWN = 8;

/**
 * @param {number[]} chain nodes that are drawn as one step, the last one is `node`
 * @returns {{title: string, rows: [string, string][]}} rows of name and value
 */
export function describeFrame(tree, node, zoomed, chain = [node]) {
  const { functions, frame, total, self, baseline, unit } = tree;
  const row = frame[node];
  const line = functions.line[row] ? `:${functions.line[row]}` : "";
  const amount = (value, whole) => `${formatValue(value, unit)} · ${formatShare(value, whole)}`;
  const rows = [
    ["module", functions.module[row]],
    ["source", functions.file[row] && functions.file[row] + line],
    ["total", amount(total[node], total[0])],
    ["self", amount(self[node], total[0])],
  ];
  if (zoomed !== 0 && !baseline) rows.push(["of the zoomed frame", formatShare(total[node], total[zoomed])]);
  if (baseline) {
    rows.push(["baseline", amount(baseline.total[node], baseline.total[0])]);
    rows.push(["change", formatChange(...sidesOf(tree, node)) + (isSupported(tree, node) ? "" : ", which the samples do not support")]);
  }
  if (chain.length > 1) rows.push(["called through", through(tree, chain)]);
  if (functions.kind[row] === "jit") rows.push(["kind", "JIT or interpreter"]);
  else if (functions.kind[row] !== "icestream" && !functions.named[row])
    rows.push(["kind", "no symbols"]);
  return { title: functions.name[row], rows: rows.filter(([, value]) => value) };
}

export function announce({ title, rows }) {
  byId("announcer").textContent = [title, ...rows.map(([name, value]) => `${name} ${value}`)].join(", ");
}

function through({ functions, frame }, chain) {
  const names = chain.slice(0, -1).map((node) => functions.name[frame[node]]);
  return names.length > CHAIN_SHOWN ? ["…", ...names.slice(-CHAIN_SHOWN)].join(" › ") : names.join(" › ");
}
