// Times as the API takes them (RFC 3339, Unix seconds, `now`, `now-15m`), and for people in local time or UTC.

import { isUtc } from "./settings.js";

export const PRESETS = ["now-5m", "now-15m", "now-1h", "now-3h", "now-12h", "now-1d", "now-2d", "now-7d", "now-30d"];

const UNIT_MS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };
const UNIT_WORD = { ms: "ms", s: "seconds", m: "minutes", h: "hours", d: "days", w: "weeks" };
const RELATIVE = /^now(?:([+-])(\d+)(ms|s|m|h|d|w))?$/;

export const isRelative = (text) => RELATIVE.test(text.trim());

const WITHOUT_ZONE = /^(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d(?::\d\d(?:\.\d+)?)?))?$/;

/** Returns Unix milliseconds, or NaN if the text is not a time. A date without a zone is in the zone that is shown. */
export function toMillis(text, now = Date.now()) {
  text = text.trim();
  const relative = RELATIVE.exec(text);
  if (relative) {
    const [, sign, amount, unit] = relative;
    return unit ? now + (sign === "-" ? -1 : 1) * Number(amount) * UNIT_MS[unit] : now;
  }
  if (/^\d{1,12}(\.\d+)?$/.test(text)) return Number(text) * 1000;
  const [, day, clock = "00:00"] = WITHOUT_ZONE.exec(text) ?? [];
  return Date.parse(day ? `${day}T${clock}${isUtc() ? "Z" : ""}` : text);
}

/** Returns what a person typed as the API takes it. Throws an Error that says what is expected. */
export function canonicalTime(text) {
  text = text.trim();
  if (isRelative(text)) return text;
  const millis = toMillis(text);
  if (Number.isNaN(millis))
    throw new Error(`“${text}” is not a time: use now, now-15m, 2026-01-31 12:00 or Unix seconds`);
  return toRfc3339(millis);
}

export const toRfc3339 = (millis) => new Date(Math.round(millis)).toISOString();

/** Returns a range in words: "last 15 minutes", or both ends. What is not a time stays as it is. */
export function describeRange(start, end) {
  const relative = RELATIVE.exec(start);
  if (relative && relative[1] === "-" && end === "now") {
    const [, , amount, unit] = relative;
    return `last ${amount} ${amount === "1" ? UNIT_WORD[unit].replace(/s$/, "") : UNIT_WORD[unit]}`;
  }
  const ago = (text) => {
    const [, sign, amount, unit] = RELATIVE.exec(text) ?? [];
    return amount && sign === "-" ? `${amount} ${UNIT_WORD[unit]} ago` : text;
  };
  if (isRelative(start) && isRelative(end)) return `from ${ago(start)} to ${ago(end)}`;
  const [from, to] = [toMillis(start), toMillis(end)];
  if (isRelative(start) || isRelative(end) || Number.isNaN(from + to)) return `${start} – ${end}`;
  return formatRange(from, to);
}

/** Returns both ends, the day only once. */
export function formatRange(start, end) {
  const sameDay = formatDay(start) === formatDay(end);
  return `${formatMoment(start)} – ${sameDay ? formatClock(end) : formatMoment(end)}${isUtc() ? " UTC" : ""}`;
}

/** A time of day, with its date unless that is today's. */
export const formatRecent = (millis) => (formatDay(millis) === formatDay(Date.now()) ? formatClock(millis) : formatMoment(millis));

export const formatMoment = (millis) => `${formatDay(millis)} ${formatClock(millis)}`;

export function formatDay(millis) {
  const moment = shifted(millis);
  return `${moment.getUTCFullYear()}-${two(moment.getUTCMonth() + 1)}-${two(moment.getUTCDate())}`;
}

export function formatClock(millis, seconds = true) {
  const moment = shifted(millis);
  const text = `${two(moment.getUTCHours())}:${two(moment.getUTCMinutes())}`;
  return seconds ? `${text}:${two(moment.getUTCSeconds())}` : text;
}

/** Milliseconds that the shown zone is behind UTC at a time. */
export const zoneOffset = (millis) => (isUtc() ? 0 : new Date(millis).getTimezoneOffset() * 60_000);

/** A date whose UTC fields are those of the zone that is shown. */
const shifted = (millis) => new Date(millis - zoneOffset(millis));

const two = (number) => String(number).padStart(2, "0");

/** Returns a range `by` milliseconds earlier. Relative times stay relative, and what is not a time stays as it is. */
export function earlier(start, end, by, now = Date.now()) {
  return [start, end].map((text) => {
    const moved = toMillis(text, now) - by;
    if (Number.isNaN(moved)) return text;
    return isRelative(text) ? `now-${duration(now - moved)}` : toRfc3339(moved);
  });
}

/** Returns milliseconds as text, such as "30m": in the largest exact unit, else in seconds. */
function duration(millis) {
  const unit = ["d", "h", "m"].find((name) => millis % UNIT_MS[name] === 0) ?? "s";
  return `${Math.round(millis / UNIT_MS[unit])}${unit}`;
}

/** Returns the range of the same length just before. */
export function preceding(start, end, now = Date.now()) {
  return earlier(start, end, toMillis(end, now) - toMillis(start, now), now);
}
