// Colours of the graph: by kind of code (shaded by module) in a profile, by change in a comparison.

import { isDark } from "../base/dom.js";

const KINDS = [
  { kind: "user", title: "native", hue: 212, saturation: 52 },
  { kind: "jit", title: "JIT, interpreter", hue: 152, saturation: 42 },
  { kind: "kernel", title: "kernel", hue: 28, saturation: 68 },
  { kind: "unknown", title: "without symbols", hue: 265, saturation: 16 },
  { kind: "icestream", title: "not a function", hue: 0, saturation: 0 },
  { kind: "label", title: "label", hue: 330, saturation: 34 },
];
const UNKNOWN = KINDS.findIndex(({ kind }) => kind === "unknown");
const SHADES = 6;

/** Steps of change to each side of "the same". */
const STEPS = 6;

/**
 * Colours by index: `fill`, and `faded` for frames that a search does not match.
 * @typedef {{fill: string[], faded: string[], text: string, fadedText: string}} Palette
 */

/** Returns the palette, and the index of each function's colour. Modules of one kind differ by shade. */
export function kindColours(functions) {
  const dark = isDark();
  const fill = [];
  for (const { hue, saturation } of KINDS) {
    for (let shade = 0; shade < SHADES; shade++) {
      const lightness = dark ? 25 + shade * 1.8 : 84 - shade * 3.2;
      const shadedHue = hue + (saturation ? (shade - SHADES / 2) * 4 : 0);
      fill.push(`hsl(${shadedHue} ${dark ? saturation * 0.72 : saturation}% ${lightness}%)`);
    }
  }
  const shadeOfModule = new Map();
  const ofFunction = Uint8Array.from(functions.name, (_, row) => {
    const module = functions.module[row];
    if (!shadeOfModule.has(module)) shadeOfModule.set(module, textShade(module));
    return kindIndex(functions, row) * SHADES + shadeOfModule.get(module);
  });
  return { palette: palette(fill, dark), ofFunction };
}

/** Rows of the legend: each kind of functions that have flat values, with their sum. */
export function kindLegend(functions, { rows, flat, restFlat }) {
  const values = new Float64Array(KINDS.length);
  for (const row of rows) values[kindIndex(functions, row)] += flat[row];
  values[UNKNOWN] += restFlat;
  const { palette: colours } = kindColours({ name: [], module: [], kind: [] });
  return KINDS.map(({ title }, row) => ({ title, value: values[row], colour: colours.fill[row * SHADES + 2] })).filter(
    ({ value }) => value !== 0,
  );
}

/** Palette of a comparison: index STEPS is "the same", higher ones are worse, lower ones better. */
export function changePalette(blueOrange) {
  const dark = isDark();
  const [worse, better] = blueOrange ? [28, 214] : [4, 138];
  const fill = [];
  for (let step = -STEPS; step <= STEPS; step++) {
    const strength = Math.abs(step) / STEPS;
    const saturation = step === 0 ? 0 : 32 + 26 * strength;
    const lightness = dark ? 24 + 7 * strength : 91 - 25 * strength;
    fill.push(`hsl(${step > 0 ? worse : better} ${saturation}% ${lightness}%)`);
  }
  return palette(fill, dark);
}

/** The index of a change's colour in the palette; `change` is -1 (gone) to 1 (new). */
export const changeColour = (change) =>
  STEPS + Math.sign(change) * Math.min(STEPS, Math.ceil(Math.abs(change) * STEPS - 0.3));

/** Whether a change is too small for a colour, and so for a label in the graph. */
export const isSame = (change) => changeColour(change) === STEPS;

function palette(fill, dark) {
  return {
    fill,
    faded: fill.map(() => (dark ? "hsl(220 6% 20%)" : "hsl(220 10% 94%)")),
    text: dark ? "#f0f1f3" : "#16191d",
    fadedText: dark ? "#9aa1ab" : "#646b75",
  };
}

function kindIndex(functions, row) {
  const kind = functions.kind[row];
  if (kind === "user" && functions.named && !functions.named[row]) return UNKNOWN;
  const index = KINDS.findIndex((entry) => entry.kind === kind);
  return index < 0 ? UNKNOWN : index;
}

function textShade(text) {
  let hash = 7;
  for (let i = 0; i < text.length; i++) hash = (Math.imul(hash, 31) + text.charCodeAt(i)) >>> 0;
  return hash % SHADES;
}
