// Elements without markup: text is only ever text, whatever a function or a label is called.

/** An element with properties (`class`, `on…` listeners, ARIA and other attributes) and children (nodes or text). */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

/** A bar filled up to a share of 0 to 1. */
export function bar(share) {
  const filled = element("span", { class: "filled" });
  filled.style.width = `${Math.min(100, Math.max(0, share * 100)) || 0}%`;
  return element("span", { class: "bar", "aria-hidden": "true" }, filled);
}

export const byId = (id) => document.getElementById(id);

/** Calls `act` once, `milliseconds` after the last of a burst of calls. */
export function debounce(act, milliseconds) {
  let timer = 0;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => act(...args), milliseconds);
  };
}

/** A canvas' context, its bitmap fitted to its size on the screen; drawing is in CSS pixels. */
export function fittedContext(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const width = Math.round(canvas.clientWidth * ratio);
  const height = Math.round(canvas.clientHeight * ratio);
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
  return context;
}

/** The value of a colour or font variable of the style sheet, in the scheme that is on. */
export const cssVariable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Calls `act` when the system changes between light and dark. */
export function onSchemeChange(act) {
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", act);
}

export const isDark = () => window.matchMedia("(prefers-color-scheme: dark)").matches;
