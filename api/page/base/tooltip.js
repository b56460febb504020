// The tooltip of the page, beside the pointer and inside the window: a title, and rows of name and value.

import { byId, element } from "./dom.js";

/** @param {{title: string, rows: [string, string][]}} content */
export function showTooltip({ title, rows }, x, y) {
  const box = byId("tooltip");
  const list = element(
    "dl",
    {},
    ...rows.flatMap(([name, value]) => [element("dt", {}, name), element("dd", { class: "clipped" }, value)]),
  );
  box.replaceChildren(element("strong", { class: "clipped" }, title), list);
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  const left = x + 14 + width > window.innerWidth ? x - width - 10 : x + 14;
  const top = y + 16 + height > window.innerHeight ? y - height - 10 : y + 16;
  box.style.left = `${Math.max(4, left)}px`;
  box.style.top = `${Math.max(4, top)}px`;
}

export function hideTooltip() {
  byId("tooltip").hidden = true;
}
