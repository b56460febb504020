// The spans of a request on a time axis, with the CPU of each, and what it waited where waits are profiled.

import { byId, element } from "./base/dom.js";
import { formatCpu, confidenceInterval } from "./cpu_text.js";
import { formatShare, formatValue } from "./base/format.js";
import { waitTexts } from "./time_text.js";

/** Shows the spans of a request ({cpu_ns, spans}). */
export function showSpans({ cpu_ns: whole, spans }) {
  const ordered = inTreeOrder(spans);
  const timed = spans.filter((span) => span.end_unix_nano);
  const start = Math.min(...timed.map((span) => span.start_unix_nano));
  const duration = Math.max(1, ...timed.map((span) => span.end_unix_nano - start));
  byId("span-axis").textContent = timed.length ? `0 – ${formatValue(duration)}` : "";
  const hasWaits = spans.some(({ waits }) => waitTexts(waits).length);
  byId("span-waits").hidden = !hasWaits;
  byId("span-rows").replaceChildren(
    ...ordered.map(({ span, depth }) => {
      const name = element("th", { scope: "row" }, span.name || span.span_id || "(no span)");
      if (span.status === "error") name.append(element("span", { class: "error-flag", title: "The span ended with an error" }, "error"));
      name.style.paddingLeft = `${8 + Math.min(8, depth) * 14}px`;
      const cells = [
        element("td", { class: "text" }, span.service),
        element("td", { class: "track" }, track(span, start, duration)),
        element("td", {}, formatCpu(span), element("span", { class: "share" }, formatShare(span.cpu_ns, whole))),
        hasWaits && element("td", {}, ...waitTexts(span.waits).map((text) => element("div", {}, text))),
        element("td", {}, formatValue(span.sampled_cpu_ns), confidenceInterval(span)),
      ];
      return element("tr", { title: `span ${span.span_id}` }, name, ...cells);
    }),
  );
  return ordered[0]?.span;
}

/** A bar from the span's start to its end on the axis of the request, filled to the share of that time that was CPU. */
function track(span, start, duration) {
  if (!span.end_unix_nano) return "";
  const length = Math.max(1, span.end_unix_nano - span.start_unix_nano);
  const filled = element("span", { class: "filled" });
  filled.style.width = `${Math.min(100, (100 * span.cpu_ns) / length)}%`;
  const extent = element("span", { class: "extent" }, filled);
  const left = (100 * (span.start_unix_nano - start)) / duration;
  extent.style.left = `${Math.min(99, left)}%`;
  extent.style.width = `${Math.max(1, Math.min(100 - left, (100 * length) / duration))}%`;
  const text = `${formatValue(length)} from ${formatValue(span.start_unix_nano - start)} on, ${formatValue(span.cpu_ns)} CPU`;
  return element("span", { class: "axis", title: text, role: "img", "aria-label": text }, extent);
}

/** Returns {span, depth}: each span after its parent, in the order of their starts. A span with an unknown parent is a root. */
function inTreeOrder(spans) {
  const known = new Set(spans.map((span) => span.span_id));
  const children = new Map();
  const byStart = [...spans].sort((a, b) => (a.start_unix_nano ?? Infinity) - (b.start_unix_nano ?? Infinity) || 0);
  for (const span of byStart) {
    const parent = known.has(span.parent_span_id) && span.parent_span_id !== span.span_id ? span.parent_span_id : "";
    if (!children.has(parent)) children.set(parent, []);
    children.get(parent).push(span);
  }
  // The CPU outside of all spans has the span ID "", which is no parent.
  const ordered = [];
  const open = (children.get("") ?? []).reverse().map((span) => ({ span, depth: 0 }));
  while (open.length) {
    const { span, depth } = open.pop();
    ordered.push({ span, depth });
    if (!span.span_id) continue;
    for (const child of (children.get(span.span_id) ?? []).reverse()) open.push({ span: child, depth: depth + 1 });
  }
  const reached = new Set(ordered.map(({ span }) => span));
  const inCycles = spans.filter((span) => !reached.has(span));
  return [...ordered, ...inCycles.map((span) => ({ span, depth: 0 }))];
}
