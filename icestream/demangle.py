"""Readable names of C++ and Rust symbols.

C++ (Itanium ABI) names go through `__cxa_demangle` of libstdc++, which every manylinux wheel relies on already; Rust's
legacy names are Itanium names whose path holds escapes and ends with a hash; its others are read by demangle_rust.py. A
name that cannot be read stays as it is.
"""

import ctypes
import functools
import re
from collections.abc import Callable

from icestream.demangle_rust import demangle_v0

MAX_LENGTH = 4096
"""Longer names are left alone: some templates demangle to megabytes."""

_COLD = re.compile(r"\.cold(\.\d+)?$")
_RUST_HASH = re.compile(r"::h[0-9a-f]{16}$")
_RUST_ESCAPE = re.compile(r"\$(SP|BP|RF|LT|GT|LP|RP|C|u[0-9a-f]{1,6})\$")
_RUST_NAMES = {"SP": "@", "BP": "*", "RF": "&", "LT": "<", "GT": ">", "LP": "(", "RP": ")", "C": ","}


@functools.lru_cache(maxsize=65_536)
def demangle(name: str) -> str:
    """`_ZN3foo3barEv` to `foo::bar()`; every other name as it is, without the `.cold` of a part that the compiler moved
    away from its function: debug information may name the whole function after it."""
    name = _COLD.sub("", name)
    if not name.startswith(("_Z", "__Z", "_R")) or len(name) > MAX_LENGTH:
        return name
    if name.startswith("_R"):
        return demangle_v0(name) or name
    readable = _itanium()(name.removeprefix("_") if name.startswith("__Z") else name)
    if readable is None or len(readable) > 4 * MAX_LENGTH:
        return name
    return _rust(readable) if _RUST_HASH.search(readable) else readable


def _rust(path: str) -> str:
    path = _RUST_HASH.sub("", path)
    parts = [part.removeprefix("_") if part.startswith("_$") else part for part in path.split("::")]
    return _RUST_ESCAPE.sub(_rust_character, "::".join(parts)).replace("..", "::")


def _rust_character(match: re.Match[str]) -> str:
    code = match[1]
    if code in _RUST_NAMES:
        return _RUST_NAMES[code]
    number = int(code[1:], 16)
    return chr(number) if 0x20 <= number < 0x110000 and not 0xD800 <= number < 0xE000 else match[0]


@functools.cache
def _itanium() -> Callable[[str], str | None]:
    try:
        cxx = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return lambda name: None
    libc = ctypes.CDLL(None)
    cxx.__cxa_demangle.restype = ctypes.c_void_p
    cxx.__cxa_demangle.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int)]
    libc.free.argtypes = [ctypes.c_void_p]

    def run(name: str) -> str | None:
        status = ctypes.c_int()
        # The C++ runtime allocates the answer and leaves it to the caller to free.
        address = cxx.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
        if not address:
            return None
        try:
            return ctypes.string_at(address).decode(errors="replace")
        finally:
            libc.free(address)

    return run
