// What the time of a request was, as a sentence: CPU, waits by reason, and what is not explained.

import { formatValue } from "./base/format.js";

/** With more thread time for its duration than this, several threads worked for a request at a time. */
const AT_ONCE = 1.01;

/** The waits of a request or span, the longest first: ["180 ms lock", ...]. */
export const waitTexts = (waits) =>
  Object.entries(waits ?? {}).map(([reason, value]) => `${formatValue(value)} ${reason.replace("_", " ")}`);

/** The sum, and notes on it: how sure it is, and how to profile waits. */
export function timeTexts(time) {
  const { duration_ns: duration, thread_time_ns: thread, no_thread_ns: none, unexplained_ns: unexplained } = time;
  const { threads, followed_of: followedOf, unprofiled_hosts: hosts } = time;
  const alone = thread <= AT_ONCE * (duration - none);
  const parts = [`${formatValue(time.cpu_ns)} CPU`, ...waitTexts(time.waits)];
  if (alone && none) parts.push(`${formatValue(none)} on no thread`);
  if (unexplained > 0) parts.push(`${formatValue(unexplained)} unexplained`);
  const of = alone ? formatValue(duration) : `${formatValue(duration)}, ${formatValue(thread)} of ${threads} thread${threads === 1 ? "" : "s"}`;
  const notes = [];
  if (followedOf > 1)
    notes.push(
      `One wait in ${followedOf} was followed and stands for all: waits are ${formatValue(time.off_cpu_low_ns)} to ${formatValue(time.off_cpu_high_ns)} (95 %).`,
    );
  else if (unexplained < 0 && !threads) notes.push("That is more than its duration: it ran on several threads.");
  if (hosts.length) notes.push(`Waits are not profiled on ${hosts.join(", ")}: icestream collect --off-cpu 1 profiles them.`);
  return { sum: `${of} = ${parts.join(" + ")}`, notes };
}
