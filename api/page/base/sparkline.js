// A small curve of values over time, as wide as its cell.

const NAMESPACE = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [100, 20];

/** Returns an SVG of values, the largest one at the top. */
export function sparkline(values) {
  const largest = Math.max(...values, 1);
  const step = WIDTH / Math.max(1, values.length - 1);
  const points = values.map((value, i) => `${(i * step).toFixed(2)},${(HEIGHT - (HEIGHT - 2) * (Math.max(0, value) / largest)).toFixed(2)}`);
  const svg = part("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", class: "sparkline", "aria-hidden": "true" });
  svg.append(part("polygon", { points: `0,${HEIGHT} ${points.join(" ")} ${WIDTH},${HEIGHT}` }));
  return svg;
}

function part(tag, attributes) {
  const created = document.createElementNS(NAMESPACE, tag);
  for (const [name, value] of Object.entries(attributes)) created.setAttribute(name, value);
  return created;
}
