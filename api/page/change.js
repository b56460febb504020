// How a value changed against its baseline, without infinities: what is only on one side is "new" or "gone".

/** The two sides of a node or function, each scaled so that they can be compared. */
export const sides = (baseline, own, before) => [own * baseline.ownScale, before * baseline.scale];

/** -1 (gone) to 1 (new), 0: the same. Half of it before or after is ±0.5. */
export function changeOf(now, before) {
  const larger = Math.max(now, before);
  return larger > 0 ? Math.max(-1, Math.min(1, (now - before) / larger)) : 0;
}

/** "+34 %", "−12 %", "×5.2", "new", "gone", "same". */
export function formatChange(now, before) {
  if (before <= 0) return now > 0 ? "new" : "same";
  if (now <= 0) return "gone";
  const ratio = now / before;
  if (ratio >= 3) return `×${ratio >= 100 ? Math.round(ratio) : ratio.toFixed(1)}`;
  const percent = Math.round(100 * (ratio - 1));
  if (percent === 0) return "same";
  return percent > 0 ? `+${percent} %` : `−${-percent} %`;
}
