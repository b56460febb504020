// Numbers for people. Values are in the unit of the profile type, CPU in nanoseconds.

const TIME_STEPS = [
  [3600e9, "h"],
  [60e9, "min"],
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
  [1, "ns"],
];
const powers = (base, names) => names.map((name, power) => [base ** power, name]).reverse();
const BYTE_STEPS = powers(1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]);
const COUNT_STEPS = powers(1000, ["", "k", "M", "G", "T", "P", "E"]);

/** Formats a value with three significant digits. Units other than "nanoseconds" and "bytes" are counts. */
export function formatValue(value, unit = "nanoseconds") {
  if (value === 0) return unit === "nanoseconds" ? "0 s" : "0";
  const steps = unit === "nanoseconds" ? TIME_STEPS : unit === "bytes" ? BYTE_STEPS : COUNT_STEPS;
  const size = Math.abs(value);
  // Uses minutes and hours only from 10 on: 90 s is easier to compare with 12 s than 1.5 min.
  const [step, name] =
    steps.find(([minimum, word]) => size >= minimum * (word === "min" || word === "h" ? 10 : 1)) ?? steps.at(-1);
  return `${threeDigits(value / step)}${name ? " " + name : ""}`;
}

/** Formats a range of values: "6.03 ms – 87.7 ms". */
export const formatBounds = (low, high, unit) => `${formatValue(low, unit)} – ${formatValue(high, unit)}`;

/** Formats a share as a percentage: "12.3 %", "0.04 %", "<0.01 %". */
export function formatShare(part, whole) {
  if (!whole) return "–";
  if (part === 0) return "0 %";
  const percent = (100 * part) / whole;
  if (Math.abs(percent) < 0.01) return "<0.01 %";
  return `${percent.toFixed(Math.abs(percent) >= 99.95 ? 0 : Math.abs(percent) >= 10 ? 1 : 2)} %`;
}

export const formatCount = (count) => Math.round(count).toLocaleString("en").replaceAll(",", "\u202f");

/** Formats how many CPUs were busy, with two significant digits: "0.44 CPUs", "128 CPUs", "<0.001 CPUs". */
export function formatCpus(cpus) {
  const number = cpus >= 99.5 ? formatCount(cpus) : cpus > 0 && cpus < 0.001 ? "<0.001" : cpus.toPrecision(2);
  return `${number} CPUs`;
}

/** The unit of a profile type `name:sample type:unit:period type:period unit`. */
export const unitOf = (profileType) => profileType.split(":")[2] || "count";

/** Returns a short name of a profile type: "CPU", "Off-CPU", or its own parts. */
export function profileTypeTitle(profileType) {
  if (profileType === "process_cpu:cpu:nanoseconds:cpu:nanoseconds") return "CPU";
  if (profileType === "off_cpu:off_cpu:nanoseconds:off_cpu:nanoseconds") return "Off-CPU";
  const [name, sampleType, unit] = profileType.split(":");
  return `${name} · ${sampleType} (${unit})`;
}

function threeDigits(number) {
  const size = Math.abs(number);
  return number.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
}
