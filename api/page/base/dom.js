// Creates elements without parsing markup, so that names of functions and labels are only ever text.

import { onSetting, setting } from "./settings.js";

/** Escapes control and direction characters, so that a name cannot rearrange the text beside it. */
export const visible = (text) =>
  text.replace(
    /[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu,
    (char) => `\\u{${char.codePointAt(0).toString(16)}}`,
  );

/**
 * Creates an element with properties (`class`, `on…` listeners, ARIA and other attributes) and children (nodes or text,
 * which is made `visible`).
 */
export function element(tag, properties = {}, ...children) {
  const created = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) created.addEventListener(name.slice(2), value);
    else if (name === "title") created.title = value.split("\n").map(visible).join("\n");
    else created.setAttribute(name, value === true ? "" : value);
  }
  const parts = children.filter((child) => child !== null && child !== undefined && child !== false);
  created.append(...parts.map((part) => (typeof part === "string" ? visible(part) : part)));
  return created;
}

/** Creates a bar that is filled to a share of 0 to 1. */
export function bar(share) {
  const filled = element("span", { class: "filled" });
  filled.style.width = `${Math.min(100, Math.max(0, share * 100)) || 0}%`;
  return element("span", { class: "bar", "aria-hidden": "true" }, filled);
}

/** Replaces the rows of a list. If a button in it has the focus, the one with the same title gets it. */
export function replaceRows(body, rows) {
  const focused = body.contains(document.activeElement) ? document.activeElement.title : "";
  body.replaceChildren(...rows);
  const same = focused && [...body.querySelectorAll("button")].find(({ title }) => title === focused);
  if (same) same.focus({ preventScroll: true });
}

/** Saves a blob as a file of this name. */
export function saveFile(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href));
}

export const byId = (id) => document.getElementById(id);

/** Returns a function that calls `act` once, `milliseconds` after the last of a burst of calls; its `cancel` prevents that. */
export function debounce(act, milliseconds) {
  let timer = 0;
  const later = (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => act(...args), milliseconds);
  };
  later.cancel = () => clearTimeout(timer);
  return later;
}

/** Returns the cleared context of a canvas, whose bitmap fits its size on the screen. Drawing is in CSS pixels. */
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

/** Returns the value of a variable of the style sheet in the current colour scheme. */
export const cssVariable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const systemIsDark = window.matchMedia("(prefers-color-scheme: dark)");

/** Calls `act` when the colour scheme changes between light and dark. */
export function onSchemeChange(act) {
  systemIsDark.addEventListener("change", act);
  onSetting((name) => name === "scheme" && act());
}

/** Whether colours are dark: as was chosen, or else as the system's. */
export const isDark = () => (setting("scheme") ? setting("scheme") === "dark" : systemIsDark.matches);

/** Makes the style sheets follow the chosen scheme, before anything is painted with their colours. */
function applyScheme() {
  const scheme = setting("scheme");
  document.documentElement.style.colorScheme = scheme || "light dark";
  byId("dark-styles").media = { dark: "all", light: "not all" }[scheme] ?? systemIsDark.media;
}

onSetting((name) => name === "scheme" && applyScheme());
applyScheme();
