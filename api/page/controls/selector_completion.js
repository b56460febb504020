// Completion of selectors such as `{service="checkout", version=~"1\\.4.*"}`: what can be completed at the cursor, and the
// text after it. This only follows what is being typed; the API parses selectors and reports their errors.

import { literal } from "../base/patterns.js";

const NAME = /[A-Za-z_][A-Za-z0-9_.-]*/y;
const OPERATOR = /=~|!~|!=|=/y;
const SPACE = /\s*/y;

/**
 * What can be completed at `cursor`: null, or
 * {what: "name" | "value", label, operator, prefix (typed so far), from, to (what a choice replaces), others (the complete
 * matchers in front of it, as a selector)}
 */
export function completionAt(text, cursor) {
  const others = [];
  let at = skip(SPACE, text, 0);
  if (text[at] === "{") at++;
  if (cursor < at) return null;
  for (;;) {
    const matcherEnd = at;
    at = skip(/[\s,]*/y, text, at);
    if (others.length && !text.slice(matcherEnd, Math.min(at, cursor)).includes(",")) return null;
    const start = Math.min(at, cursor);
    const name = readName(text, at);
    if (cursor < at || cursor <= name.end) {
      const prefix = text.slice(start, cursor).replace(/^["'`]/, "");
      return {
        what: "name",
        label: "",
        operator: "",
        prefix,
        from: start,
        to: cursor < at ? cursor : name.end,
        others: join(others),
      };
    }
    if (name.end === at) return null;
    at = skip(SPACE, text, name.end);
    const operator = take(OPERATOR, text, at);
    if (!operator || cursor < at + operator.length) return null;
    at = skip(SPACE, text, at + operator.length);
    const value = readString(text, at);
    if (!value) {
      if (cursor !== at) return null;
      return { what: "value", label: name.text, operator, prefix: "", from: at, to: at, others: join(others) };
    }
    if (cursor > at && (!value.closed || cursor < value.end)) {
      const to = value.closed ? value.end : cursor;
      return {
        what: "value",
        label: name.text,
        operator,
        prefix: text.slice(at + 1, cursor),
        from: at,
        to,
        others: join(others),
      };
    }
    if (cursor < value.end || !value.closed) return null;
    at = value.end;
    others.push(text.slice(start, at));
  }
}

/** Returns text and cursor after a name or value was chosen for `spot`, a result of completionAt. */
export function complete(text, spot, choice) {
  const head = text.slice(0, spot.from);
  const tail = text.slice(spot.to);
  if (spot.what === "name") {
    const name = take(NAME, choice, 0) === choice ? choice : JSON.stringify(choice);
    const rest = /^\s*[=!]/.test(tail) ? tail : `=""${tail || "}"}`;
    const opened = withBrace(head) + name;
    return { text: opened + rest, cursor: opened.length + (rest === tail ? 0 : 2) };
  }
  const value = spot.operator.endsWith("~") ? literal(choice) : choice;
  const done = withBrace(head) + JSON.stringify(value);
  return { text: done + (tail.includes("}") ? tail : `${tail}}`), cursor: done.length };
}

/** Returns a selector as the API takes it: adds missing braces. */
export function withBraces(text) {
  const trimmed = text.trim();
  if (!trimmed) return "{}";
  return trimmed.startsWith("{") ? trimmed : `{${trimmed}}`;
}

const withBrace = (head) => (head.trimStart().startsWith("{") ? head : `{${head}`);
const join = (matchers) => `{${matchers.join(", ")}}`;

function readName(text, at) {
  const quoted = readString(text, at);
  if (quoted) return { text: quoted.text, end: quoted.end };
  const name = take(NAME, text, at);
  return { text: name, end: at + name.length };
}

/** Reads a string in quotes at `at`, null if there is none. `text` is without quotes and backslashes. */
function readString(text, at) {
  const quote = text[at];
  if (quote !== '"' && quote !== "'" && quote !== "`") return null;
  let end = at + 1;
  while (end < text.length && text[end] !== quote) end += text[end] === "\\" && quote !== "`" ? 2 : 1;
  const closed = end < text.length;
  return { text: text.slice(at + 1, end).replace(/\\(.)/g, "$1"), end: Math.min(text.length, end + 1), closed };
}

function take(pattern, text, at) {
  pattern.lastIndex = at;
  return pattern.exec(text)?.[0] ?? "";
}

const skip = (pattern, text, at) => at + take(pattern, text, at).length;
