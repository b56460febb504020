// The callers and the callees of one function, as two graphs. A click on a frame shows the sandwich of its function.

import { byId, element, onSchemeChange } from "../base/dom.js";
import { foldChains, chainOf, withAllFrames } from "./chains.js";
import { describeFrame } from "./description.js";
import { showFrameMenu } from "./frame_menu.js";
import { Icicle } from "./icicle.js";
import { makeLook } from "./look.js";
import { readTree } from "./tree.js";

export class Sandwich {
  #state;
  #sides;

  constructor(state) {
    this.#state = state;
    this.#sides = [new Side(state, "callers"), new Side(state, "callees")];
    byId("sandwich-close").addEventListener("click", () => state.update({ function: "", module: "", file: "" }));
    onSchemeChange(() => this.refine());
  }

  /** Shows the API's answer. */
  show(answer) {
    const { function: name, module, file } = this.#state.values;
    byId("sandwich-title").replaceChildren(name, element("span", { class: "where" }, [module, file].filter(Boolean).join(" ")));
    for (const side of this.#sides) side.show(readTree({ ...answer[side.name], unit: answer.unit }));
  }

  /** Draws again, with or without chains. */
  refine() {
    for (const side of this.#sides) side.draw();
  }
}

class Side {
  #state;
  #tree = null;
  #drawn = null;
  #unfolded = new Set();
  #icicle;

  constructor(state, name) {
    this.#state = state;
    this.name = name;
    this.#icicle = new Icicle(byId(name), {
      describe: (drawn) => this.#describe(drawn),
      zoom: (drawn) => this.#select(this.#function(drawn)),
      announce: (drawn) => this.#announce(drawn),
      menu: (drawn, x, y) => showFrameMenu(state, this.#function(drawn), x, y, this.#unfoldItem(drawn)),
    });
  }

  show(tree) {
    this.#tree = tree;
    this.#unfolded = new Set();
    this.draw();
  }

  draw() {
    if (!this.#tree) return;
    const all = this.#state.values.chains === "all" || this.name === "callers"; // the first caller is of interest
    this.#drawn = all ? withAllFrames(this.#tree) : foldChains(this.#tree, this.#unfolded);
    this.#icicle.show(this.#drawn, makeLook(this.#drawn, null, false));
  }

  #function(drawn) {
    const { name, module, file, kind } = this.#tree.functions;
    const row = this.#drawn.frame[drawn];
    return { name: name[row], module: module[row], file: file[row], kind: kind[row] };
  }

  #select({ name, module, file, kind }) {
    if (kind !== "icestream") this.#state.update({ function: name, module, file });
  }

  #describe(drawn) {
    const node = this.#drawn.nodeOf[drawn];
    return describeFrame(this.#tree, node, 0, chainOf(this.#tree, node, this.#drawn.folded[drawn]));
  }

  #announce(drawn) {
    const { title, rows } = this.#describe(drawn);
    byId("announcer").textContent = [title, ...rows.map(([name, value]) => `${name} ${value}`)].join(", ");
  }

  #unfoldItem(drawn) {
    const folded = this.#drawn.folded[drawn];
    const act = () => {
      for (const node of chainOf(this.#tree, this.#drawn.nodeOf[drawn], folded)) this.#unfolded.add(this.#tree.pathId[node]);
      this.draw();
    };
    return folded ? [{ text: `Show its ${folded + 1} frames`, act }] : [];
  }
}
