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

/** What to do about the kind that misses the most. */
const TO_DO = {
  missing_windows: "See docs/operations.md: icestream replay fetches what Kafka still has.",
  lost_samples: "Give its collector more CPU, or lower ICESTREAM_FREQUENCY.",
  lost_waits: "Raise ICESTREAM_OFF_CPU_THRESHOLD_MS, or lower ICESTREAM_OFF_CPU.",
  dropped_samples: "Repair Kafka; for longer outages, raise ICESTREAM_SPOOL_LIMIT_MB.",
  not_running: "See the log of its collector for why it ended.",
  silent: "See whether the host is up, and the log of its collector.",
  dead_letters: "icestream tail icestream.dead-letters says why.",
};

/** Shows or hides the line. The graph, which asks for the same range, shows errors. */
export async function showHoles(values, signal) {
  const line = byId("holes");
  try {
    const answer = await completeness(values, signal);
    line.hidden = !answer.holes.length && answer.known_from === null;
    line.classList.toggle("wrong", answer.holes.some((hole) => hole.kind !== "lower_rate"));
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
  const isLower = holes.every((hole) => hole.kind === "lower_rate");
  const names = [...new Set(holes.map((hole) => hole.host_id || "(no host)"))];
  const where = hosts === 1 && !more ? names[0] : `${more ? "more than " : ""}${formatCount(hosts)} hosts (${names[0]}…)`;
  const cpu = missing ? `, about ${formatValue(missing)} of CPU is missing` : "";
  if (isLower) return element("summary", {}, unknown, `${where} sampled at a lower frequency for a while, to stay within its CPU budget. Sums are right.`);
  const todo = TO_DO[holes[0].kind] ?? "";
  return element("summary", {}, unknown, element("strong", {}, `Data of ${where} is not complete${cpu}: `), kinds.join("; "), todo && `. ${todo}`);
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
