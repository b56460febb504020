// The line above the graph, which says what the answer is about; and what the page says if there are no samples.

import { element } from "./base/dom.js";
import { formatCount, formatCpus, formatShare, formatValue, profileTypeTitle } from "./base/format.js";
import { describeRange, formatRange } from "./base/times.js";
import { DEFAULTS, NOWHERE } from "./state.js";
import { waitTexts } from "./time_text.js";
import { latestVersions } from "./versions.js";

const LONGER = [
  ["now-1d", "Show the last day"],
  ["now-30d", "Show the last 30 days"],
];

/** Returns the parts of the line. */
export function summary(answer, values) {
  const { unit, total, samples, stacks, cut } = answer;
  if (answer.slow) return slowSummary(answer);
  const isCpu = values.profile_type === DEFAULTS.profile_type;
  const parts = [
    element("strong", { id: "total", "data-value": total }, `${formatValue(total, unit)}${isCpu ? " CPU" : ""}`),
    `${formatCount(samples)} samples`,
  ];
  if (answer.aggregation === "average") parts.push("averaged over time");
  if (stacks !== undefined) parts.push(`${formatCount(stacks)} stacks`);
  if (answer.of_total !== undefined) parts.push(`${formatShare(total, answer.of_total)} of ${formatValue(answer.of_total, unit)}`);
  const sampled = answer.sampled_cpu_ns ?? total;
  if (isCpu && sampled > 0 && samples > 0) parts.push(`sampled at ${formatCount((1e9 * samples) / sampled)} Hz`);
  if (sampled !== total) parts.push(`scaled to the CPU of the request: its samples add up to ${formatValue(sampled, unit)}`);
  if (answer.unsampled_cpu_ns) parts.push(`${formatValue(answer.unsampled_cpu_ns)} more in services without samples`);
  if (answer.start && values.view !== "requests") {
    const [start, end] = [Date.parse(answer.start), Date.parse(answer.end)];
    if (isCpu) parts.push(`${formatCpus(total / ((end - start) * 1e6))} on average`);
    parts.push(formatRange(start, end));
  }
  if (answer.baseline_samples === 0 && samples > 0) {
    parts.push(element("strong", {}, "The baseline has no samples: choose another time or selector for it"));
  } else if (answer.baseline_total !== undefined) {
    const how = { request: "compared by the CPU of one request", share: "compared by share", value: "compared by value" }[answer.scaling];
    parts.push(
      `baseline ${formatValue(answer.baseline_total, unit)} in ${formatCount(answer.baseline_samples)} samples, ${how}`,
    );
  }
  if (cut?.nodes && !answer.root)
    parts.push(`${formatCount(cut.nodes)} frames are too small to draw (${formatShare(cut.value, total)}): zoom in`);
  return parts.map((part) => (part instanceof Node ? part : element("span", {}, part)));
}

/** What is compared: how many requests, and how they differ. */
function slowSummary({ slow, fast, measure, samples, explained, baseline_samples: fastSamples }) {
  const side = (word, bound, group, count) =>
    element(
      "span",
      {},
      `${formatCount(group.requests)} ${word} requests (${measure === "cpu" ? "CPU " : ""}${bound} ${formatValue(group.bound_ns)}): `,
      `mean ${formatValue(group.mean_duration_ns)}, ${[`CPU ${formatValue(group.mean_cpu_ns)}`, ...waitTexts(group.mean_waits_ns)].join(" + ")}, ${formatCount(count)} samples`,
    );
  const because = explained === null ? [] : [element("strong", {}, `off-CPU is ${formatShare(Math.max(explained, 0), 1)} of what slow ones take longer`)];
  return [side("slow", "from", slow, samples), side("fast", "up to", fast, fastSamples), element("span", {}, "values are those of one request"), ...because];
}

/** Returns what to say of a baseline without samples, and a button that compares two versions of the service, if it has them. */
export function nothingBefore(state, { baseline_selector: selector, baseline_start: start, baseline_end: end }, versionsByService) {
  const of = selector === "{}" ? "" : ` of ${selector}`;
  const [versions, ...others] = versionsByService.values();
  const [before, now] = versions?.slice(-2) ?? [];
  const compare = () => state.update(latestVersions(state.values.selector, versions));
  return [
    element("h2", {}, `No samples${of} in ${formatRange(Date.parse(start), Date.parse(end))}.`),
    element("p", {}, "There is nothing to compare with: choose another time or selector for the baseline."),
    now && !others.length && element("p", { class: "choices" }, element("button", { type: "button", onclick: compare }, `Compare ${now} with ${before}`)),
  ].filter(Boolean);
}

/** Returns what to say, and buttons that lead to where samples may be. */
export function nothingFound(state) {
  const { values } = state;
  const { selector, start, end, trace, view, focus, ignore, function: name } = values;
  const button = (text, changes) => element("button", { type: "button", onclick: () => state.update(changes) }, text);
  const isTrace = trace && view === "requests";
  const where = isTrace ? " of this request" : selector === "{}" ? "" : ` of ${selector}`;
  const which = name ? ` with the function ${name}` : focus || ignore ? " in the stacks that the filters keep" : "";
  const when = isTrace ? "" : ` (${describeRange(start, end)})`;
  const longer = LONGER.filter(([from]) => !isTrace && (start !== from || end !== "now"));
  return [
    element("h2", {}, isTrace ? "No samples of this request." : "No samples here."),
    element("p", {}, `There are no samples of ${profileTypeTitle(values.profile_type)}${where}${which}${when}.`),
    element(
      "p",
      { class: "choices" },
      name && button("Back to the profile", NOWHERE),
      ...longer.map(([from, text]) => button(text, { start: from, end: "now" })),
      !isTrace && selector !== "{}" && button("Show all labels", { selector: "{}" }),
      (focus || ignore) && button("Show all stacks", { focus: "", ignore: "" }),
    ),
    !(isTrace || which) &&
      element(
        "p",
        { class: "hint" },
        "A host shows up a few seconds after its collector starts (icestream up, or icestream collect).",
      ),
  ].filter(Boolean);
}
