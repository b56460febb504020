// Draws the visible part of an icicle graph. The cost depends on the number of pixels, not on that of frames.

import { firstBeyond } from "./tree.js";

export const ROW = 19;
const MIN_TEXT_WIDTH = 28; // pixels; narrower frames get no name
const MAX_LETTERS = 400; // of a name; the rest is never drawn
const SLIVER = 0.5; // pixels; narrower frames are drawn together

/**
 * Draws, and returns how many rectangles that took.
 * @param {import("./look.js").Look} look
 * @param {{left: number, right: number, top: number, zoomedLevel: number}} view left and right in the tree's unit, top in
 *   pixels
 */
export function paint(context, tree, look, view, width, height) {
  const scale = width / (view.right - view.left);
  const firstLevel = Math.max(0, Math.floor(view.top / ROW));
  const lastLevel = Math.min(tree.levelStart.length - 2, Math.floor((view.top + height) / ROW));
  const font = { context, ellipsis: 0 };
  context.font = getFont();
  context.textBaseline = "middle";
  font.ellipsis = context.measureText("…").width;
  let drawn = 0;
  for (let level = firstLevel; level <= lastLevel; level++) {
    drawn += paintLevel(font, tree, look, view, scale, width, level);
  }
  return drawn;
}

let cachedFont = "";
function getFont() {
  cachedFont ||= `12px ${getComputedStyle(document.body).fontFamily}`;
  return cachedFont;
}

function paintLevel(font, tree, look, view, scale, width, level) {
  const { context } = font;
  const end = tree.levelStart[level + 1];
  const y = level * ROW - view.top;
  const above = level < view.zoomedLevel;
  let sliverStart = -1;
  let sliverEnd = -1;
  let sliverColour = "";
  let drawn = 0;
  const flush = () => {
    if (sliverStart < 0) return;
    context.fillStyle = sliverColour;
    context.fillRect(sliverStart, y, Math.max(SLIVER, sliverEnd - sliverStart), ROW - 1);
    drawn++;
    sliverStart = -1;
  };
  let row = firstBeyond(tree, tree.levelStart[level], end, view.left);
  while (row < end) {
    const left = (tree.x[row] - view.left) * scale;
    if (left >= width) break;
    const pixels = tree.width[row] * scale;
    if (pixels >= SLIVER) {
      flush();
      paintFrame(font, look, row, left, pixels, y, width, above);
      drawn++;
      row++;
      continue;
    }
    // Skips to the first frame beyond this pixel.
    const next = Math.max(row + 1, firstBeyond(tree, row, end, view.left + (left + 1) / scale));
    const colour = fillOf(look, look.matched ? firstMatch(look, row, next) : row);
    if (left - sliverEnd > 1 || colour !== sliverColour) flush();
    if (sliverStart < 0) sliverStart = left;
    sliverEnd = left + 1;
    sliverColour = colour;
    row = next;
  }
  flush();
  return drawn;
}

const fades = (look, row) => look.matched !== null && !look.matched[row];

const fillOf = (look, row) => (fades(look, row) ? look.palette.faded : look.palette.fill)[look.colour[row]];

/** Returns the first match in [from, to), else `from`: a match is visible, however narrow it is. */
function firstMatch(look, from, to) {
  for (let row = from; row < to; row++) if (look.matched[row]) return row;
  return from;
}

function paintFrame(font, look, row, left, pixels, y, width, above) {
  const { context } = font;
  const from = Math.max(0, left);
  const to = Math.min(width, left + pixels);
  context.globalAlpha = above ? 0.6 : 1;
  context.fillStyle = fillOf(look, row);
  context.fillRect(from, y, Math.max(SLIVER, to - from - (pixels > 3 ? 1 : 0)), ROW - 1);
  if (to - from >= MIN_TEXT_WIDTH) {
    context.fillStyle = fades(look, row) ? look.palette.fadedText : look.palette.text;
    const text = fitted(font, look.label(row), to - from - 8);
    if (text) context.fillText(text, from + 4, y + ROW / 2);
  }
  context.globalAlpha = 1;
}

const widths = new Map();

/** Returns as much of a text as fits into `room` pixels. */
function fitted({ context, ellipsis }, label, room) {
  const text = label.length > MAX_LETTERS ? label.slice(0, MAX_LETTERS) : label;
  let full = widths.get(text);
  if (full === undefined) {
    if (widths.size > 100_000) widths.clear();
    full = context.measureText(text).width;
    widths.set(text, full);
  }
  if (full <= room) return text;
  const letters = Math.floor(((room - ellipsis) / full) * text.length);
  return letters < 2 ? "" : `${text.slice(0, letters)}…`;
}
