// The source lines of one function with their values, and links to the file's text.

import * as api from "../api.js";
import { showDialog } from "../base/popups.js";
import { bar, element } from "../base/dom.js";
import { formatShare, formatValue } from "../base/format.js";
import { patternOf } from "../base/patterns.js";
import { setSetting, setting } from "../base/settings.js";

/** Shows the lines. `values` is the page's state, `shown` the function: {name, module, file}. */
export async function showLines(values, shown) {
  const place = element("p", { class: "hint" }, shown.file || "The source file is not known.");
  const body = element("tbody", {});
  const names = ["Line", "Flat", "Cumulative"].map((name) => element("th", { scope: "col" }, name));
  const table = element("table", { class: "lines" }, element("thead", {}, element("tr", {}, ...names)), body);
  const status = element("p", { role: "status" }, "Asking for its lines…");
  const asking = new AbortController();
  const dialog = showDialog(`Lines of ${shown.name}`, place, status, element("div", { class: "scrolled", tabindex: "0" }, table), templateForm(values, fill));
  dialog.addEventListener("close", () => asking.abort());
  let answer = { lines: [] };
  fill();
  try {
    answer = await api.lines(values, shown, patternOf(shown.name, "function"), asking.signal);
    status.textContent = answer.lines.length ? "" : "No lines are known of this function.";
    fill();
  } catch (error) {
    status.textContent = error.message;
  }

  function fill() {
    const { unit, total, lines } = answer;
    table.hidden = lines.length === 0;
    const largest = Math.max(1, ...lines.map((row) => row.cumulative));
    const amount = (value) => element("td", {}, formatValue(value, unit), element("span", { class: "share" }, formatShare(value, total)));
    body.replaceChildren(
      ...lines.map(({ line, flat, cumulative }) => {
        const href = lineAddress(values, shown.file, line);
        const link = href ? element("a", { href, target: "_blank", rel: "noreferrer" }, String(line)) : String(line);
        const cell = amount(cumulative);
        cell.append(bar(cumulative / largest));
        return element("tr", {}, element("th", { scope: "row" }, link), amount(flat), cell);
      }),
    );
  }
}

/** The address of a line by the template of the selected service, or "". */
export const lineAddress = (values, file, line) =>
  addressOf(setting(templateName(values)), { file, line, version: versionOf(values) });

/** One template for each service that is selected: this browser keeps them. */
const templateName = (values) => `link ${valueOf(values, "service")}`;

/** The value of a label that the selector asks for, or "". */
const valueOf = ({ selector }, label) => new RegExp(`(?:^|[{,\\s])${label}="([^"\\\\]*)"`).exec(selector)?.[1] ?? "";

/** OTLP senders name the version of a service `service_version`. */
const versionOf = (values) => valueOf(values, "version") || valueOf(values, "service_version");

function templateForm(values, changed) {
  const field = element("input", {
    id: "link-template",
    type: "text",
    spellcheck: "false",
    placeholder: "https://example.org/shop/blob/main/{file}#L{line}",
  });
  field.value = setting(templateName(values));
  field.addEventListener("change", () => {
    setSetting(templateName(values), field.value.trim());
    changed();
  });
  return element("label", { class: "template" }, "Link to source files of this service, with {file}, {line} and {version} (as in the selector)", field);
}

/** Returns the address of a line, or "" if the template is not one of http or https. */
function addressOf(template, { file, line, version }) {
  if (!template || !file) return "";
  const path = file.replace(/^\//, "").split("/").map(encodeURIComponent).join("/");
  const parts = { "{file}": path, "{line}": String(line), "{version}": encodeURIComponent(version) };
  const text = template.replace(/\{(?:file|line|version)\}/g, (name) => parts[name]);
  return /^https?:\/\//i.test(text) && URL.canParse?.(text) !== false ? text : "";
}
