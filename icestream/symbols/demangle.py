"""Readable names of C++ and Rust symbols.

C++ names (Itanium ABI) go through `__cxa_demangle` of libstdc++, which every manylinux wheel relies on already. Rust's
names, legacy and v0, go through the rustc-demangle crate, which leaves out the hashes of crates. A name that cannot be
read stays as it is.

Other libraries read both, but LLVM's demangler (pycxxfilt) overflows the stack on deeply nested C++ names, and
cpp_demangle (multi-demangle) writes `{vtable(foo)}` and `std::ostream::ostream` for what has conventional names.
"""

import ctypes
import functools
import re
from collections.abc import Callable

import pyderust

from icestream.process.byte_cache import ByteCache

MAX_LENGTH = 4096
"""Longer names are left alone: some templates demangle to megabytes."""
MAX_READABLE_LENGTH = 4 * MAX_LENGTH
"""A short symbol may refer back to itself until its readable name has gigabytes; the libraries stop at about 1 MB."""

NAMES_BYTES = 16_000_000
"""Limit of the names that are remembered."""

_known: ByteCache[str, str] = ByteCache(NAMES_BYTES, lambda name, readable: len(name) + len(readable))
_COLD = re.compile(r"\.cold(\.\d+)?$")
_RUST = re.compile(r"(_R\w+|_?_ZN.*17h[0-9a-f]{16}E)(\..*)?")


def demangle(name: str) -> str:
    """`_ZN3foo3barEv` to `foo::bar()`; every other name as it is, without the `.cold` of a part that the compiler moved
    away from its function: debug information may name the whole function after it."""
    return _known.get_or_make(name, _demangle)


def _demangle(name: str) -> str:
    name = _COLD.sub("", name)
    if not name.startswith(("_Z", "__Z", "_R")) or len(name) > MAX_LENGTH:
        return name
    if match := _RUST.fullmatch(name):
        readable = _rust(match[1])
    else:
        readable = _itanium()(name.removeprefix("_") if name.startswith("__Z") else name)
    return name if readable is None or len(readable) > MAX_READABLE_LENGTH else readable


def _rust(name: str) -> str | None:
    try:
        return pyderust.demangle(name)
    except pyderust.DemangleError:
        return None


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
