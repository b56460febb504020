"""Selectors as in PromQL: `{service="checkout", version=~"1\\\\.4.*"}`.

Grammar (whitespace anywhere between tokens):

    selector: "{" [ matcher { "," matcher } [ "," ] ] "}"
    matcher:  name ( "=" | "!=" | "=~" | "!~" ) string
    name:     letters, digits, "_", "." and "-", not starting with a digit, "." or "-"; or any string in quotes
    string:   in double or single quotes with the escapes of Go (\\n, \\", \\\\, \\xHH, \\uHHHH...), or in backticks

Regular expressions (=~, !~) are RE2's and match the whole value. A missing label has the empty string as its value.
"""

import re
from dataclasses import dataclass
from typing import Literal

from api.queries.selection.pattern_size import MAX_SIZE, pattern_size

MAX_LENGTH = 4096
MAX_MATCHERS = 32
MAX_REGEX_LENGTH = 1000

Operator = Literal["=", "!=", "=~", "!~"]


class SelectorError(ValueError):
    """A selector cannot be used. The message says where, and what was expected; the hint, what else to ask."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True)
class Matcher:
    label: str
    operator: Operator
    value: str


def parse(text: str) -> tuple[Matcher, ...]:
    """Returns the matchers of a selector, all of which must hold; none for `{}` or empty text. Raises SelectorError."""
    if len(text) > MAX_LENGTH:
        raise SelectorError(f"the selector has {len(text)} characters, more than {MAX_LENGTH}")
    if not text.strip():
        return ()
    return _Parser(text).selector()


def format_selector(matchers: tuple[Matcher, ...]) -> str:
    """Returns a selector that `parse` reads as the same matchers."""
    return "{" + ", ".join(f"{_format_name(m.label)}{m.operator}{_quote(m.value)}" for m in matchers) + "}"


_SPACE = re.compile(r"[ \t\r\n]*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")
_OPERATOR = re.compile(r"=~|!~|!=|=")
_ESCAPE = re.compile(r"\\(?:([abfnrtv\\'\"`])|x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([0-7]{3}))")
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class _Parser:
    """Reads `text` from the index `at`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.size = 0  # of all regular expressions

    def selector(self) -> tuple[Matcher, ...]:
        self.expect("{", 'a selector starts with "{", as in {service="checkout"}')
        matchers: list[Matcher] = []
        while not self.accept("}"):
            if matchers:
                self.expect(",", 'expected "," or "}" after a matcher')
                if self.accept("}"):
                    break
            if len(matchers) == MAX_MATCHERS:
                raise self.error(f"more than {MAX_MATCHERS} matchers")
            matchers.append(self.matcher())
        self.skip()
        if self.at < len(self.text):
            raise self.error('expected nothing after "}"')
        return tuple(matchers)

    def matcher(self) -> Matcher:
        label = self.name()
        self.skip()
        match = _OPERATOR.match(self.text, self.at)
        if match is None:
            raise self.error("expected =, !=, =~ or !~ after a label name")
        self.at = match.end()
        operator: Operator = match[0]  # type: ignore[assignment]
        self.skip()
        start = self.at
        value = self.string("a value in quotes")
        if operator in ("=~", "!~") and len(value) > MAX_REGEX_LENGTH:
            self.at = start
            raise self.error(f"the regular expression has more than {MAX_REGEX_LENGTH} characters")
        if operator in ("=~", "!~"):
            self.size += pattern_size(value)
            if self.size > MAX_SIZE:
                self.at = start
                raise self.error(f"regular expressions repeat too much: more than {MAX_SIZE} elements")
        return Matcher(label, operator, value)

    def name(self) -> str:
        self.skip()
        if self.text[self.at : self.at + 1] in ('"', "'", "`"):
            name = self.string("a label name")
            if not name:
                raise self.error("a label name must not be empty")
            return name
        match = _NAME.match(self.text, self.at)
        if match is None:
            raise self.error("expected a label name")
        self.at = match.end()
        return match[0]

    def string(self, what: str) -> str:
        quote = self.text[self.at : self.at + 1]
        if quote not in ('"', "'", "`") or not quote:
            raise self.error(f"expected {what}")
        start = self.at
        self.at += 1
        parts: list[str] = []
        while True:
            char = self.text[self.at : self.at + 1]
            if not char:
                self.at = start
                raise self.error(f"the string that starts with {quote} does not end")
            if char == quote:
                self.at += 1
                return "".join(parts)
            parts.append(self.escape() if char == "\\" and quote != "`" else self.plain(char))

    def plain(self, char: str) -> str:
        if "\ud800" <= char <= "\udfff":
            raise self.error("not a character of Unicode")
        self.at += 1
        return char

    def escape(self) -> str:
        match = _ESCAPE.match(self.text, self.at)
        if match is None:
            raise self.error(
                r"unknown escape; write \\ for a backslash, \" for a quote, or put the string in backticks"
            )
        letter, *numbers = match.groups()
        if letter is not None:
            char = _ESCAPED.get(letter, letter)
        else:
            number = int(numbers[3], 8) if numbers[3] else int(next(n for n in numbers if n), 16)
            if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
                raise self.error("not a character of Unicode")
            char = chr(number)
        self.at = match.end()
        return char

    def skip(self) -> None:
        match = _SPACE.match(self.text, self.at)
        assert match is not None
        self.at = match.end()

    def accept(self, token: str) -> bool:
        self.skip()
        if self.text.startswith(token, self.at):
            self.at += len(token)
            return True
        return False

    def expect(self, token: str, complaint: str) -> None:
        if not self.accept(token):
            raise self.error(complaint)

    def error(self, complaint: str) -> SelectorError:
        rest = self.text[self.at : self.at + 20]
        actual = f"found {rest!r}" if rest else "the selector ends"
        return SelectorError(f"at character {self.at + 1}: {complaint}; {actual}")


def _format_name(name: str) -> str:
    return name if _NAME.fullmatch(name) else _quote(name)


def _quote(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'
