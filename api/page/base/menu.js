// A menu at a point of the window, for pointer and keyboard.

import { element } from "./dom.js";

let close = () => {};

/**
 * Shows a menu. An item with `href` is a link to a file, others do something.
 * @param {{text: string, act?: () => void, href?: string}[]} items
 */
export function showMenu(x, y, title, items) {
  close();
  const before = document.activeElement;
  const menu = element("div", { class: "menu", role: "menu", "aria-label": title, onkeydown: (event) => key(event, menu) });
  menu.append(element("strong", { role: "presentation" }, title), ...items.map(item));
  document.body.append(menu);
  const { width, height } = menu.getBoundingClientRect();
  menu.style.left = `${Math.max(4, Math.min(x, window.innerWidth - width - 4))}px`;
  menu.style.top = `${Math.max(4, Math.min(y, window.innerHeight - height - 4))}px`;
  const outside = (event) => menu.contains(event.target) || close();
  close = () => {
    close = () => {};
    menu.remove();
    document.removeEventListener("pointerdown", outside, true);
    window.removeEventListener("blur", close);
    if (document.activeElement === document.body) before?.focus({ preventScroll: true });
  };
  document.addEventListener("pointerdown", outside, true);
  window.addEventListener("blur", close);
  menu.querySelector("[role=menuitem]")?.focus();
}

function item({ text, act, href }) {
  const properties = { role: "menuitem", tabindex: "-1" };
  if (href) return element("a", { ...properties, href, download: "", onclick: () => close() }, text);
  const choose = () => {
    close();
    act();
  };
  return element("button", { ...properties, type: "button", onclick: choose }, text);
}

function key(event, menu) {
  const items = [...menu.querySelectorAll("[role=menuitem]")];
  const at = items.indexOf(document.activeElement);
  const steps = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 };
  if (event.key === "Escape" || event.key === "Tab") close();
  else if (event.key in steps) items[(steps[event.key] + items.length) % items.length].focus();
  else return;
  event.preventDefault();
  event.stopPropagation();
}
