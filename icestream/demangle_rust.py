"""Readable names of Rust's v0 symbols.

Format: RFC 2603 of Rust, "Symbol name mangling v0". What comes out has no hashes of crates, as `{:#}` of the
rustc-demangle crate: `<shop::Cart<u64> as shop::Total>::total`.
"""

import re
from collections.abc import Callable

MAX_STEPS = 2_000
MAX_DEPTH = 100
MAX_LENGTH = 16_384
"""A short symbol may refer back to itself until its readable name has gigabytes."""

_BASIC = {
    "a": "i8", "b": "bool", "c": "char", "d": "f64", "e": "str", "f": "f32", "h": "u8", "i": "isize", "j": "usize",
    "l": "i32", "m": "u32", "n": "i128", "o": "u128", "p": "_", "s": "i16", "t": "u16", "u": "()", "v": "...",
    "x": "i64", "y": "u64", "z": "!",
}  # fmt: skip
_POINTERS = {"R": "&", "Q": "&mut ", "P": "*const ", "O": "*mut "}
_SPECIAL = {"C": "closure", "S": "shim"}
_NUMBER = re.compile(r"0|[1-9][0-9]*")
_BASE62 = re.compile(r"[0-9a-zA-Z]{0,16}_")
_HEX = re.compile(r"n?[0-9a-f]{0,64}_")


class _BadNameError(ValueError):
    pass


def demangle_v0(name: str) -> str | None:
    """The readable name of `_R...`; None where it is no such name, or one that nobody should read."""
    if not name.startswith("_R") or not name.isascii():
        return None
    try:
        return _Reader(name[2:].partition(".")[0]).name()
    except (_BadNameError, IndexError, UnicodeError, ValueError, OverflowError):
        return None


class _Reader:
    """Reads from left to right; every method returns what it read as text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._steps = 0
        self._depth = 0
        self._lifetimes = 0

    def name(self) -> str:
        """All of it: a path, and where it was made the crate that asked for it."""
        text = self.path(value=True)
        if self._at < len(self._text):
            self.path()
        if self._at != len(self._text):
            raise _BadNameError
        return text

    def path(self, value: bool = False) -> str:
        """`value`: where arguments need a turbofish."""
        self._enter()
        kind = self._take()
        if kind == "C":
            text = self._identifier()[0]
        elif kind in "MX":
            self._disambiguator()
            self.path()  # where the impl is
            text = self._impl(kind == "X")
        elif kind == "Y":
            text = self._impl(True)
        elif kind == "N":
            text = self._nested(value)
        elif kind == "I":
            text = self.path(value) + ("::<" if value else "<") + ", ".join(self._until_end(self._argument)) + ">"
        elif kind == "B":
            text = self._back(lambda: self.path(value))
        else:
            raise _BadNameError
        return self._leave(text)

    def type(self) -> str:
        self._enter()
        kind = self._take()
        if kind in _BASIC:
            text = _BASIC[kind]
        elif kind in _POINTERS:
            lifetime = self._lifetime(self._base62()) + " " if kind in "RQ" and self._skip("L") else ""
            text = _POINTERS[kind].replace("&", "&" + lifetime.removeprefix("'_ ")) + self.type()
        elif kind == "A":
            text = f"[{self.type()}; {self._constant()}]"
        elif kind == "S":
            text = f"[{self.type()}]"
        elif kind == "T":
            parts = self._until_end(self.type)
            text = f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        elif kind == "F":
            text = self._bound(self._signature)
        elif kind == "D":
            text = "dyn " + self._bound(lambda: " + ".join(self._until_end(self._dyn_trait)))
            if not self._skip("L"):
                raise _BadNameError
            lifetime = self._lifetime(self._base62())
            text += "" if lifetime == "'_" else f" + {lifetime}"
        elif kind == "B":
            text = self._back(self.type)
        else:
            self._at -= 1
            text = self.path()
        return self._leave(text)

    def _nested(self, value: bool) -> str:
        space = self._take()
        outer = self.path(value)
        name, number = self._identifier()
        if space.isupper():
            return f"{outer}::{{{_SPECIAL.get(space, space)}{':' + name if name else ''}#{number}}}"
        return f"{outer}::{name}" if name else outer

    def _impl(self, of_trait: bool) -> str:
        text = self.type()
        return f"<{text} as {self.path()}>" if of_trait else f"<{text}>"

    def _argument(self) -> str:
        if self._skip("L"):
            return self._lifetime(self._base62())
        return self._constant() if self._skip("K") else self.type()

    def _signature(self) -> str:
        unsafe = "unsafe " if self._skip("U") else ""
        abi = ""
        if self._skip("K"):
            name = "C" if self._skip("C") else self._plain_identifier().replace("_", "-")
            abi = f'extern "{name}" '
        parameters = ", ".join(self._until_end(self.type))
        result = self.type()
        return f"{unsafe}{abi}fn({parameters})" + ("" if result == "()" else f" -> {result}")

    def _dyn_trait(self) -> str:
        text = self.path()
        bindings = []
        while self._skip("p"):
            bindings.append(f"{self._plain_identifier()} = {self.type()}")
        if not bindings:
            return text
        return f"{text[:-1]}, {', '.join(bindings)}>" if text.endswith(">") else f"{text}<{', '.join(bindings)}>"

    def _constant(self) -> str:
        self._enter()
        kind = self._take()
        if kind == "B":
            return self._leave(self._back(self._constant))
        if kind == "p":
            return self._leave("_")
        if kind not in _BASIC:
            raise _BadNameError  # structures: nobody names functions by them yet
        digits = self._match(_HEX)[:-1]
        number = int(digits.removeprefix("n") or "0", 16)
        if kind == "b":
            return self._leave("true" if number else "false")
        if kind == "c":
            return self._leave(repr(chr(number)))
        return self._leave(f"{'-' if digits.startswith('n') else ''}{number}")

    def _bound(self, read: Callable[[], str]) -> str:
        """With the lifetimes that `for<...>` introduces."""
        count = self._base62() + 1 if self._skip("G") else 0
        if count > 32:
            raise _BadNameError
        self._lifetimes += count
        names = ", ".join(self._lifetime(count - i) for i in range(count))
        text = read()
        self._lifetimes -= count
        return f"for<{names}> {text}" if names else text

    def _lifetime(self, index: int) -> str:
        if index == 0:
            return "'_"
        depth = self._lifetimes - index
        if depth < 0:
            raise _BadNameError
        return f"'{chr(ord('a') + depth)}" if depth < 26 else f"'_{depth}"

    def _identifier(self) -> tuple[str, int]:
        number = self._disambiguator()
        return self._plain_identifier(), number

    def _plain_identifier(self) -> str:
        punycode = self._skip("u")
        length = int(self._match(_NUMBER))
        self._skip("_")
        text = self._text[self._at : self._at + length]
        if len(text) < length:
            raise _BadNameError
        self._at += length
        if not punycode:
            return text
        start, _, rest = text.rpartition("_")
        return f"{start}-{rest}".encode().decode("punycode") if start else rest.encode().decode("punycode")

    def _disambiguator(self) -> int:
        return self._base62() + 1 if self._skip("s") else 0

    def _base62(self) -> int:
        digits = self._match(_BASE62)[:-1]
        number = 0
        for digit in digits:
            value = ord(digit) - (48 if digit.isdigit() else 87 if digit.islower() else 29)
            number = number * 62 + value
        return number + 1 if digits else 0

    def _back(self, read: Callable[[], str]) -> str:
        """What `read` reads further left."""
        here = self._at - 1
        to = self._base62()
        if to >= here:
            raise _BadNameError
        after, self._at = self._at, to
        text = read()
        self._at = after
        return text

    def _until_end(self, read: Callable[[], str]) -> list[str]:
        parts = []
        while not self._skip("E"):
            parts.append(read())
        return parts

    def _take(self) -> str:
        self._at += 1
        return self._text[self._at - 1]

    def _skip(self, character: str) -> bool:
        there = self._text.startswith(character, self._at)
        self._at += there
        return there

    def _match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise _BadNameError
        self._at = found.end()
        return found[0]

    def _enter(self) -> None:
        self._steps += 1
        self._depth += 1
        if self._steps > MAX_STEPS or self._depth > MAX_DEPTH:
            raise _BadNameError

    def _leave(self, text: str) -> str:
        self._depth -= 1
        if len(text) > MAX_LENGTH:
            raise _BadNameError
        return text
