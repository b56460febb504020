// How the CPU of a request or span is written: by which measure, and how sure it is.

import { element } from "./base/dom.js";
import { formatBounds, formatValue, profileTypeTitle } from "./base/format.js";

export function measureOf({ cpu_ns: cpu, thread_cpu_ns: threadCpu }) {
  if (!threadCpu) return "by samples";
  return cpu === threadCpu ? "by the threads' CPU clocks" : "by the threads' CPU clocks, and by samples in services without them";
}

/** Sums of a request or span as they are shown: samples of another profile type than CPU say nothing of CPU. */
export const shown = (sums, profileType) =>
  profileTypeTitle(profileType) === "CPU" ? sums : { ...sums, cpu_ns: sums.thread_cpu_ns };

/** The CPU of a request or span; "≈" in front says that no clock measured it. */
export const formatCpu = ({ cpu_ns: cpu, thread_cpu_ns: threadCpu }) => `${threadCpu || !cpu ? "" : "≈ "}${formatValue(cpu)}`;

/** The 95 % confidence interval of sampled CPU, or null. */
export const confidenceInterval = ({ sampled_cpu_low_ns: low, sampled_cpu_high_ns: high }) =>
  high === null ? null : element("span", { class: "interval", title: "95 % confidence interval" }, formatBounds(low, high));
