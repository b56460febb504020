// How a value changed against its baseline. A value on one side only is "new" or "gone", not infinite.

import { formatValue } from "../base/format.js";

/** The values of both sides, scaled so that they can be compared. */
export const sides = (baseline, now, before) => [now * baseline.profileScale, before * baseline.scale];

/** From -1 (gone) to 1 (new); 0 is the same, and twice or half as much is ±0.5. */
export function changeOf(now, before) {
  const larger = Math.max(now, before);
  return larger > 0 ? Math.max(-1, Math.min(1, (now - before) / larger)) : 0;
}

/** "+34 %", "−12 %", "×5.2", "÷300", "new", "gone", "same". */
export function formatChange(now, before) {
  if (before <= 0) return now > 0 ? "new" : "same";
  if (now <= 0) return "gone";
  const ratio = now / before;
  if (ratio >= 3) return `×${ratio >= 100 ? Math.round(ratio) : ratio.toFixed(1)}`;
  if (ratio < 0.005) return `÷${Math.round(1 / ratio)}`; // −100 % would say that it is gone
  const percent = Math.round(100 * (ratio - 1));
  if (percent === 0) return "same";
  return percent > 0 ? `+${percent} %` : `−${-percent} %`;
}

/** "+2.10 s", "−130 ms"; what would be "−0.00 ns" is 0. */
export function signedValue(change, unit) {
  const size = Math.abs(change);
  return size < 0.005 ? formatValue(0, unit) : `${change > 0 ? "+" : "−"}${formatValue(size, unit)}`;
}
