// The line that tells what is missing in the time range shown; it opens to a list by host.

import { completeness } from "./api.js";
import { byId, element } from "./base/dom.js";
import { formatCount, formatValue } from "./base/format.js";
import { formatMoment, formatRange } from "./base/times.js";

/** Kinds of holes in words. Those of docs/operations.md. */
const WORDS = {
  missing_windows: "windows are missing",
  missing_activity: "windows of activity are missing",
  lost_samples: "samples did not fit into the kernel's buffers",
  dropped_samples: "samples were dropped because the spool was full",
  lost_waits: "waits did not fit into the kernel's tables",
  not_running: "the collector did not run",
  silent: "the host sent nothing",
  lower_rate: "windows at a lower frequency",
  dead_letters: "messages could not be processed",
};

/** Shows or hides the line. The graph, which asks for the same range, shows errors. */
export async function showHoles(values, signal) {
  const line = byId("holes");
  try {
    const answer = await completeness(values, signal);
    line.hidden = !answer.holes.length && answer.known_from === null;
    if (!line.hidden) line.replaceChildren(heading(answer), list(answer));
  } catch {
    if (!signal.aborted) line.hidden = true;
  }
}

function heading({ holes, more, missing_cpu_ns: missing, known_from: from }) {
  const unknown = from === null ? "" : `What is missing before ${formatMoment(Date.parse(from))} is not known. `;
  if (!holes.length) return element("summary", {}, unknown);
  const hosts = new Set(holes.map((hole) => hole.host_id)).size;
  const kinds = [...new Set(holes.map((hole) => WORDS[hole.kind] ?? hole.kind))];
  const where = `${more ? "more than " : ""}${formatCount(hosts)} ${hosts === 1 && !more ? "host" : "hosts"}`;
  const cpu = missing ? `, about ${formatValue(missing)} of CPU` : "";
  return element("summary", {}, unknown, element("strong", {}, `Data of ${where} is not complete${cpu}: `), kinds.join("; "));
}

function list({ holes, more }) {
  if (!holes.length) return element("p", {}, "Which batches are stored is remembered for as long as rows are kept.");
  const rows = holes.map((hole) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, hole.host_id || "(no host)"),
      element("td", {}, `${formatCount(hole.count)}`),
      element("td", { class: "text" }, WORDS[hole.kind] ?? hole.kind, hole.detail && `: ${hole.detail}`),
      element("td", {}, hole.seconds ? formatValue(hole.seconds * 1e9) : ""),
      element("td", {}, hole.missing_cpu_ns === null ? "" : formatValue(hole.missing_cpu_ns)),
      element("td", { class: "text" }, formatRange(Date.parse(hole.first), Date.parse(hole.last))),
    ),
  );
  const names = ["Host", "Count", "What", "For", "Missing CPU", "When"];
  const head = element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, name)));
  const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
  return element("div", { class: "scrolled", tabindex: "0" }, table, more ? `${formatCount(more)} more` : null);
}
