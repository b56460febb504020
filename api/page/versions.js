// Versions of services in the time range, by the label service_version, and what compares the two latest ones.

import * as api from "./api.js";
import { withMatcher } from "./base/patterns.js";
import { compareVersions, isVersion } from "./base/version_order.js";
import { comparisonOf, MOST } from "./controls/ticks.js";

const LABEL = "service_version";
const MAX_GROUPS = 1000;

/** Versions by service, the latest last: the highest one, or where they have no numbers the one that began last. */
export async function versionsOf(values, signal) {
  const { groups } = await api.timelines(values, `service,${LABEL}`, MAX_GROUPS, signal);
  const found = new Map();
  for (const { labels, samples } of groups) {
    const since = samples.findIndex((count) => count !== 0);
    if (labels[LABEL] && since >= 0) found.set(labels.service, [...(found.get(labels.service) ?? []), { name: labels[LABEL], since }]);
  }
  const order = (versions) => (versions.every(({ name }) => isVersion(name)) ? (a, b) => compareVersions(a.name, b.name) : (a, b) => a.since - b.since);
  return new Map([...found].map(([service, versions]) => [service, versions.sort(order(versions)).map(({ name }) => name)]));
}

/** What compares the two latest versions of a service. */
export function latestVersions(selector, versions) {
  const among = versions.slice(-MOST).map((name) => [name, withMatcher(selector, LABEL, name)]);
  const [[, before], [, now]] = among.slice(-2);
  return comparisonOf(among, before, now);
}
