// Dialogs above the page.

import { element } from "./dom.js";

/** Shows a dialog until it is closed by its button or Escape. */
export function showDialog(title, ...content) {
  const close = element("button", { type: "button", onclick: () => dialog.close() }, "Close");
  const head = element("div", { class: "title" }, element("h2", { class: "clipped", title }, title), close);
  const dialog = element("dialog", { "aria-label": title, onclose: () => dialog.remove() }, head, ...content);
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}
