// Pictures of the graph as it stands: what paint.js draws, as SVG or as PNG.

import { saveFile } from "../base/dom.js";

const SCALE = 2; // pixels of a PNG for each of the page, as of good screens
const MOST_PIXELS = 16_384; // in each direction: more no browser draws

/** Saves all levels of the graph. @param {import("./icicle.js").Icicle} icicle @param {string} ground its background */
export async function savePicture(icicle, format, ground) {
  const { width, height } = icicle.size;
  const canvas = document.createElement("canvas");
  canvas.width = Math.min(MOST_PIXELS, width * SCALE);
  canvas.height = Math.min(MOST_PIXELS, height * SCALE);
  const context = canvas.getContext("2d");
  if (format === "svg") {
    const drawn = new SvgContext(context);
    icicle.drawAll(drawn);
    return saveFile(new Blob([drawn.picture(width, height, ground)], { type: "image/svg+xml" }), "icestream.svg");
  }
  context.fillStyle = ground;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.setTransform(SCALE, 0, 0, SCALE, 0, 0);
  icicle.drawAll(context);
  return saveFile(await new Promise((done) => canvas.toBlob(done)), "icestream.png");
}

/** The part of a canvas's context that paint.js uses, which writes SVG. */
class SvgContext {
  fillStyle = "";
  globalAlpha = 1;
  #parts = [];
  #measuring;

  /** @param {CanvasRenderingContext2D} measuring measures texts */
  constructor(measuring) {
    this.#measuring = measuring;
  }

  set font(font) {
    this.#measuring.font = font;
  }

  measureText(text) {
    return this.#measuring.measureText(text);
  }

  fillRect(x, y, width, height) {
    this.#add("rect", { x, y, width, height }, "/>");
  }

  fillText(text, x, y) {
    this.#add("text", { x, y }, `>${escaped(text)}</text>`);
  }

  picture(width, height, ground) {
    const [, size, family] = /([\d.]+px) (.*)/.exec(this.#measuring.font);
    const head = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"`;
    const style = `font-family="${escaped(family)}" font-size="${size}" dominant-baseline="central"`;
    return `${head} ${style}><rect width="100%" height="100%" fill="${ground}"/>${this.#parts.join("")}</svg>`;
  }

  #add(tag, sizes, end) {
    const place = Object.entries(sizes).map(([name, value]) => `${name}="${+value.toFixed(2)}"`).join(" ");
    const faded = this.globalAlpha < 1 ? ` opacity="${this.globalAlpha}"` : "";
    this.#parts.push(`<${tag} ${place} fill="${this.fillStyle}"${faded}${end}`);
  }
}

const escaped = (text) => text.replace(/[&<>"]/g, (char) => `&#${char.charCodeAt(0)};`);
