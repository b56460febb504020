// Which stacks are shown, and which of their frames: above the graph.

import * as api from "../api.js";
import { byId, cssVariable, element } from "../base/dom.js";
import { savePicture } from "../graph/picture.js";
import { either } from "../base/patterns.js";
import { showMenu } from "../base/popups.js";
import { baselineOf, NOWHERE } from "../state.js";

const CHIPS = [
  ["focus", "only stacks with"],
  ["ignore", "without stacks with"],
  ["hide", "hidden"],
];

/** What a filter is often about, as regular expressions. */
const PRESETS = [
  ["Python's interpreter", "(^|/)(lib)?python\\d[^/]*$"],
  ["memory allocation (glibc)", "^(_int_|__libc_|__GI___)?(malloc|free|calloc|realloc)|^(sysmalloc|malloc_consolidate|unlink_chunk)"],
  ["garbage collection", "^(gc_collect|deduce_unreachable|_?PyGC|runtime\\.(gc|scanobject|greyobject|bgsweep|markroot)|rgengc|gc_mark)|GarbageCollect|Scaveng|MarkCompact|^G1|^Z(Mark|Relocate)"],
  ["JIT compilers", "CompileBroker|C[12]Compiler|CompilationJob|[Tt]urbofan|Maglev|Sparkplug"],
  ["the kernel", "^\\[kernel\\]$"],
];

export function startViewBar(state, showProblem) {
  byId("frames").addEventListener("click", ({ target }) => target.value && state.update({ ...NOWHERE, frames: target.value }));
  byId("tables").addEventListener("click", ({ target }) => target.type && state.update({ table: target.value }, { replace: true }));
  for (const name of ["by", "group_by"]) {
    const select = byId(name.replace("_", "-"));
    select.addEventListener("change", () => state.update({ ...NOWHERE, [name]: select.value }));
  }
  byId("group-by").addEventListener("focus", () => fillLabels(state.values, byId("group-by")));
  byId("invert").addEventListener("click", () => state.update({ ...NOWHERE, invert: state.values.invert ? "" : "true" }));
  byId("chains").addEventListener("click", () =>
    state.update({ chains: state.values.chains ? "" : "all" }, { replace: true }),
  );
  byId("filter-presets").replaceChildren(...PRESETS.map(([title, value]) => element("option", { value }, title)));
  byId("filter").addEventListener("submit", (event) => {
    event.preventDefault();
    const [kind, pattern] = [byId("filter-kind").value, byId("filter-pattern").value.trim()];
    byId("filter-pattern").value = "";
    if (pattern) state.update({ ...NOWHERE, [kind]: kind === "focus" ? pattern : either(state.values[kind], pattern) });
  });
  byId("export").addEventListener("click", () => {
    const { left, bottom } = byId("export").getBoundingClientRect();
    const files = api.downloads(state.values, baselineOf(state.values));
    const picture = (format) => savePicture(window.icestream.graph.icicle, format, cssVariable("--ground"));
    const pictures = ["svg", "png"].map((format) => ({ text: `Picture (${format.toUpperCase()})`, act: () => picture(format) }));
    const items = [...files.map(([text, href]) => ({ text, href, act: () => save(href, showProblem) })), ...pictures];
    showMenu(left, bottom + 2, "Export as", items);
  });
  byId("chips").addEventListener("click", (event) => {
    const name = event.target.closest("button")?.dataset.chip;
    if (name) state.update({ ...NOWHERE, [name]: "" });
  });
}

export function showViewBar(values) {
  byId("by").value = values.by;
  showLabel(byId("group-by"), values.group_by);
  byId("group-by").hidden = values.view !== "profile" || values.function !== "";
  byId("invert").hidden = values.function !== "";
  byId("export").hidden = values.function !== "" || (values.view === "requests" && !values.trace);
  byId("invert").setAttribute("aria-pressed", String(values.invert === "true"));
  byId("chains").setAttribute("aria-pressed", String(values.chains === "all"));
  byId("view").hidden = ["services", "operations"].includes(values.view) || (values.view === "requests" && !values.trace && !values.against);
  for (const button of byId("tables").children) button.setAttribute("aria-pressed", String(button.value === values.table));
  byId("main").classList.toggle("calls", values.table === "calls");
  byId("chips").replaceChildren(...CHIPS.filter(([name]) => values[name]).map(([name, title]) => chip(name, title, values[name])));
}

/** Says whose code an answer shows: the API decides where the state does not. */
export function showFrames(frames) {
  for (const button of byId("frames").children) button.setAttribute("aria-pressed", String(button.value === frames));
}

async function save(href, showProblem) {
  byId("export").textContent = "Exporting…";
  await api.save(href).then(() => showProblem(null), showProblem);
  byId("export").textContent = "Export";
}

/** Fills a list of labels with those that the samples have; it keeps what it has if the API does not answer. */
export async function fillLabels(values, select) {
  try {
    const { entries } = await api.labelNames(values);
    const chosen = select.value;
    const fixed = [...select.options].filter((option) => option.value === "");
    const names = [...new Set([...entries, chosen])].filter(Boolean).sort();
    select.replaceChildren(...fixed, ...names.map((name) => element("option", { value: name }, name)));
    select.value = chosen;
  } catch {
    // The graph shows the error.
  }
}

/** Selects a label, which the list may not have yet. */
export function showLabel(select, label) {
  if (![...select.options].some((option) => option.value === label)) {
    select.append(element("option", { value: label }, label));
  }
  select.value = label;
}

function chip(name, title, pattern) {
  const remove = element("button", { type: "button", "data-chip": name, "aria-label": `Remove: ${title} ${pattern}` }, "×");
  return element("li", { class: "chip" }, `${title} `, element("code", {}, pattern), remove);
}
