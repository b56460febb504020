// What opens above the page: menus, dialogs and the tooltip.

import { byId, element } from "./dom.js";

let closeMenu = () => {};

/**
 * Shows a menu at a point of the window, for pointer and keyboard. The address of an item with `href` can be copied.
 * @param {{text: string, act: () => void, href?: string}[]} items
 */
export function showMenu(x, y, title, items) {
  closeMenu();
  const before = document.activeElement;
  const menu = element("div", { class: "menu", role: "menu", "aria-label": title, onkeydown: (event) => key(event, menu) });
  menu.append(element("strong", { role: "presentation" }, title), ...items.map(item));
  document.body.append(menu);
  const { width, height } = menu.getBoundingClientRect();
  menu.style.left = `${Math.max(4, Math.min(x, window.innerWidth - width - 4))}px`;
  menu.style.top = `${Math.max(4, Math.min(y, window.innerHeight - height - 4))}px`;
  const outside = (event) => menu.contains(event.target) || closeMenu();
  closeMenu = () => {
    closeMenu = () => {};
    menu.remove();
    document.removeEventListener("pointerdown", outside, true);
    window.removeEventListener("blur", closeMenu);
    if (document.activeElement === document.body) before?.focus({ preventScroll: true });
  };
  document.addEventListener("pointerdown", outside, true);
  window.addEventListener("blur", closeMenu);
  menu.querySelector("[role=menuitem]")?.focus();
}

function item({ text, act, href }) {
  const choose = (event) => {
    event.preventDefault();
    closeMenu();
    act();
  };
  return element(href ? "a" : "button", { role: "menuitem", tabindex: "-1", href, onclick: choose }, text);
}

function key(event, menu) {
  const items = [...menu.querySelectorAll("[role=menuitem]")];
  const at = items.indexOf(document.activeElement);
  const steps = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 };
  if (event.key === "Escape" || event.key === "Tab") closeMenu();
  else if (event.key in steps) items[(steps[event.key] + items.length) % items.length].focus();
  else return;
  event.preventDefault();
  event.stopPropagation();
}

/** Shows a dialog until it is closed by its button or Escape. */
export function showDialog(title, ...content) {
  const close = element("button", { type: "button", onclick: () => dialog.close() }, "Close");
  const head = element("div", { class: "title" }, element("h2", { class: "clipped", title }, title), close);
  const dialog = element("dialog", { "aria-label": title, onclose: () => dialog.remove() }, head, ...content);
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Shows the tooltip beside the pointer, inside the window. @param {{title: string, rows: [string, string][]}} content */
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

