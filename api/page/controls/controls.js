// The controls at the top of the page. Each is bound to a part of the state.

import * as api from "../api.js";
import { SelectorField } from "./selector_field.js";
import { byId, element, isDark, onSchemeChange } from "../base/dom.js";
import { profileTypeTitle } from "../base/format.js";
import { LabelSource } from "./label_source.js";
import { showTicked, startTicked } from "./ticks.js";
import { RangeField } from "./range_field.js";
import { isUtc, onSetting, setSetting } from "../base/settings.js";
import { showHelp } from "../dialogs/help.js";
import { baselineOf, NOWHERE, write } from "../state.js";
import { showViewBar, startViewBar } from "./view_bar.js";
import { earlier, preceding } from "../base/times.js";

const DAY_MS = 86_400_000;
const SHIFTS = [
  ["Just before", 0],
  ["Day before", DAY_MS],
  ["Week before", 7 * DAY_MS],
  ["Same time", null],
];

let fields = null;
let refreshTimer = 0;
let refreshEvery = "";
let reload = null;

/** Creates the controls. `load` asks the API again. */
export function startControls(state, load, showProblem) {
  reload = load;
  fields = {
    selector: selectorField(state, "selector-field", { label: "Selector", id: "selector" }, (selector) => ({ selector })),
    range: new RangeField(byId("range-field"), { id: "range", label: "Time range" }, (start, end) =>
      state.update({ start, end }),
    ),
    baselineSelector: selectorField(
      state,
      "baseline-selector-field",
      { label: "Selector of the baseline", id: "baseline-selector" },
      (selector) => ({ baseline_selector: selector === state.values.selector ? "" : selector }),
    ),
    baselineRange: new RangeField(
      byId("baseline-range-field"),
      { id: "baseline-range", label: "Time range of the baseline" },
      (start, end) => state.update({ baseline_start: start, baseline_end: end }),
    ),
  };
  startViews(state);
  startTicked(state);
  startShifts(state);
  startProfileTypes(state);
  startViewBar(state, showProblem);
  startSettings(state);
  byId("reload").addEventListener("click", load);
  byId("refresh").addEventListener("change", () => state.update({ refresh: byId("refresh").value }, { replace: true }));
  byId("reset").addEventListener("click", () => state.update({ at: "" }));
  document.addEventListener("keydown", (event) => shortcut(event, state));
}

export function showControls(values) {
  document.body.dataset.view = values.view;
  document.body.dataset.colours = values.colours;
  for (const link of document.querySelectorAll("[data-view]:is(a)")) {
    if (link.dataset.view === (values.view === "slow" ? "operations" : values.view)) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
    link.href = write({ ...values, ...NOWHERE, view: link.dataset.view }) || "./";
  }
  const baseline = baselineOf(values);
  fields.selector.value = values.selector;
  fields.range.show(values.start, values.end);
  fields.baselineSelector.value = baseline.selector;
  fields.baselineRange.show(baseline.start, baseline.end);
  showTicked(values);
  showProfileType(values.profile_type);
  showViewBar(values);
  byId("absolute").setAttribute("aria-pressed", String(values.absolute === "true"));
  byId("refresh").value = values.refresh;
  keepRefreshing(values.refresh);
}

function selectorField(state, host, names, changesOf) {
  const source = new LabelSource(() => state.values);
  return new SelectorField(byId(host), names, source, (selector) => state.update({ ...changesOf(selector), at: "" }));
}

function startViews(state) {
  for (const link of document.querySelectorAll("a[data-view]")) {
    link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      state.update({ ...NOWHERE, view: link.dataset.view });
    });
  }
}

function startShifts(state) {
  const set = (by) => {
    const { start, end } = state.values;
    const same = () => (by === null ? [start, end] : preceding(start, end));
    const [baseline_start, baseline_end] = by ? earlier(start, end, by) : same();
    state.update({ baseline_start, baseline_end });
  };
  const absolute = element(
    "button",
    {
      type: "button",
      id: "absolute",
      title: "Compare values as they are. If this is off, the smaller side is scaled up, so that shares are compared.",
      onclick: () => state.update({ absolute: state.values.absolute ? "" : "true" }),
    },
    "Unscaled",
  );
  byId("shifts").replaceChildren(
    ...SHIFTS.map(([title, by]) => element("button", { type: "button", onclick: () => set(by) }, title)),
    absolute,
  );
}

function startProfileTypes(state) {
  const select = byId("profile-type");
  select.addEventListener("change", () => state.update({ profile_type: select.value, at: "" }));
  // Asks whenever the list is about to open: profile types come and go with what is profiled.
  const refill = async () => {
    try {
      const types = await api.profileTypes();
      const known = new Set([...types, state.values.profile_type]);
      select.replaceChildren(...[...known].map((type) => element("option", { value: type }, profileTypeTitle(type))));
      select.value = state.values.profile_type;
    } catch {
      // Keeps the list as it is. The graph shows the error.
    }
  };
  select.addEventListener("focus", refill);
  refill();
}

function showProfileType(type) {
  const select = byId("profile-type");
  if (![...select.options].some((option) => option.value === type)) {
    select.append(element("option", { value: type }, profileTypeTitle(type)));
  }
  select.value = type;
}

function keepRefreshing(seconds) {
  if (seconds === refreshEvery) return;
  refreshEvery = seconds;
  clearInterval(refreshTimer);
  const every = Number(seconds) * 1000;
  const refresh = () => {
    // Skips a turn if the last query still runs.
    if (document.visibilityState === "visible" && byId("main").getAttribute("aria-busy") === "false") reload();
  };
  if (every >= 1000) refreshTimer = setInterval(refresh, every);
}

/** Binds the switches of colours and time zone, and the help. */
function startSettings(state) {
  const zone = () => {
    byId("zone").textContent = isUtc() ? "UTC" : "Local time";
    byId("scheme").textContent = isDark() ? "Light" : "Dark";
  };
  byId("zone").addEventListener("click", () => setSetting("zone", isUtc() ? "" : "utc"));
  byId("scheme").addEventListener("click", () => setSetting("scheme", isDark() ? "light" : "dark"));
  byId("help").addEventListener("click", showHelp);
  onSetting((name) => {
    zone();
    if (name !== "zone") return;
    showControls(state.values);
    reload();
  });
  onSchemeChange(zone);
  zone();
}

function shortcut(event, state) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, dialog, .menu")) return;
  const { values } = state;
  const keys = { "?": showHelp, r: reload };
  if (!byId("graph").hidden)
    Object.assign(keys, {
      "/": () => byId("search").focus(),
      i: () => state.update({ ...NOWHERE, invert: values.invert ? "" : "true" }),
      Backspace: () => window.icestream.graph.zoomOut(),
    });
  if (!byId("view").hidden)
    Object.assign(keys, {
      c: () => state.update({ chains: values.chains ? "" : "all" }, { replace: true }),
      t: () => state.update({ table: values.table ? "" : "calls" }, { replace: true }),
      f: () => state.update({ ...NOWHERE, frames: byId("frames").children[0].ariaPressed === "true" ? "all" : "own" }),
    });
  if (!Object.hasOwn(keys, event.key)) return;
  event.preventDefault();
  keys[event.key]();
}
