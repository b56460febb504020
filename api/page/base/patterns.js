// Regular expressions and selectors made of names.

/** Returns a regular expression (RE2) that matches this text. */
export const literal = (text) => text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");

/** Letters at each end of a long name: with backslashes, fewer than the 1,000 that the API takes. */
const END = 240;

/**
 * Returns a regular expression that matches a function's name; of a line or an address, that of its function; of a very
 * long name, both its ends.
 */
export function patternOf(name, by) {
  const whole = by === "line" ? name.replace(/:\d+$/, "") : by === "address" ? name.replace(/ 0x[0-9a-f]+$/, "") : name;
  const parts = whole.length > 2 * END ? [whole.slice(0, END), whole.slice(-END)] : [whole];
  return `^${parts.map(literal).join(".*")}$`;
}

/** Returns either of two regular expressions; "" matches nothing. */
export const either = (pattern, other) => (pattern ? `${pattern}|${other}` : other);

/** Returns a selector that also asks for a label's value, unless that is its last matcher. */
export function withMatcher(selector, label, value) {
  const name = /^[A-Za-z_][\w.-]*$/.test(label) ? label : JSON.stringify(label);
  const inside = selector.trim().replace(/^\{\s*/, "").replace(/\s*,?\s*\}$/, "");
  const matcher = `${name}=${JSON.stringify(value)}`;
  const asked = `, ${inside}`.endsWith(`, ${matcher}`);
  return `{${asked ? inside : [inside, matcher].filter(Boolean).join(", ")}}`;
}
