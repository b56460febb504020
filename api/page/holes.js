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

/** Kinds of holes in which CPU is missing. */
const MISSING_CPU = ["missing_windows", "lost_samples", "dropped_samples", "not_running", "silent"];

/** What to do about a kind. */
const TO_DO = {
  missing_activity: "See docs/operations.md: icestream replay fetches what Kafka still has.",
  lower_rate: "Raise ICESTREAM_CPU_BUDGET, or lower ICESTREAM_FREQUENCY.",
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
    line.classList.toggle("wrong", answer.holes.some(missesCpu));
    if (!line.hidden) line.replaceChildren(heading(answer), list(answer));
  } catch {
    if (!signal.aborted) line.hidden = true;
  }
}

const missesCpu = ({ kind }) => MISSING_CPU.includes(kind);
const nameOf = ({ host, host_id: id }) => host || id || "(no host)";

/** What is missing of which hosts, and what to do. Where CPU is missing, the list has the rest. */
function heading({ holes, more, missing_cpu_ns: missing, known_from: from }) {
  const unknown = from === null ? "" : `What is missing before ${formatMoment(Date.parse(from))} is not known. `;
  if (!holes.length) return element("summary", {}, unknown);
  const isCpu = holes.some(missesCpu);
  const said = isCpu ? holes.filter(missesCpu) : holes;
  const kinds = [...new Set(said.map(({ kind }) => kind))];
  const hosts = [...new Set(said.map(nameOf))];
  const others = hosts.length - 1;
  const where = `${hosts[0]}${others || more ? ` and ${more ? "more than " : ""}${formatCount(others)} other ${others === 1 ? "host" : "hosts"}` : ""}`;
  const what = `${kinds.map((kind) => WORDS[kind] ?? kind).join("; ")}. ${TO_DO[kinds[0]] ?? ""}`;
  if (!isCpu) return element("summary", {}, unknown, `${where}: ${what} All CPU that was sampled is there.`);
  const cpu = missing ? `About ${formatValue(missing)} of CPU` : "CPU";
  return element("summary", {}, unknown, element("strong", {}, `${cpu} of ${where} is missing: `), what);
}

function list({ holes, more }) {
  if (!holes.length) return element("p", {}, "Which batches are stored is remembered for as long as rows are kept.");
  const rows = holes.map((hole) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, nameOf(hole)),
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
