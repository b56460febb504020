"""Each thread's slot for its OpenTelemetry thread context (OTEP 4947), where a profiler finds it.

The slot is the thread-local variable `otel_thread_ctx_v1`: a pointer to a record of 28 bytes, or null.

    trace_id[16]  span_id[8]  valid = 1  trace_flags  attributes_size u16 = 0

A record never changes: it is the payload of a `bytes` object, made before the pointer is set to it by one store of
8 aligned bytes, and kept by the slot until the pointer has moved on. So whoever interrupts the thread sees one whole
context or none. Records belong to contexts, not to threads; a thread takes one up by pointing at it.
"""

import ctypes
import os
import platform
import sys
import tempfile
import threading

from icestream.tracing.elf import SYMBOL, shared_object

_FAR = 1 << 20
"""Static TLS lies within this distance of the thread pointer; what a dynamic descriptor holds instead is an address."""


class Unsupported(Exception):
    """Threads cannot show their context here; the message says why."""


class Slots:
    """The thread-local variable, which stays loaded in this process. Raises Unsupported."""

    def __init__(self) -> None:
        _check_platform()
        try:
            content, descriptor = shared_object(platform.machine())
        except ValueError as error:
            raise Unsupported(str(error)) from None
        self._library, path = _load(content)
        offset = _descriptor_word(path, descriptor)
        slot = self.of_this_thread()
        on_x86 = platform.machine() == "x86_64"
        if abs(offset) > _FAR or (on_x86 and ctypes.addressof(slot) - offset != threading.get_ident()):
            raise Unsupported("no room is left in static TLS (too many libraries with thread-local variables)")

    def of_this_thread(self) -> ctypes.c_char_p:
        """Returns the calling thread's slot: its `value` is the record. Only this thread may set it,
        and not after its end.
        """
        return ctypes.c_char_p.in_dll(self._library, SYMBOL)


def _check_platform() -> None:
    if sys.platform != "linux":
        raise Unsupported(f"{sys.platform} is not Linux")
    try:
        os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        raise Unsupported("the C library is not glibc") from None
    if sys.maxsize < 2**32 or sys.byteorder != "little":
        raise Unsupported("only 64-bit little-endian processes are supported")


def _load(content: bytes) -> tuple[ctypes.CDLL, str]:
    """Returns the library, and its path as the process's mappings show it.

    It is a file if one can be executed here, because profilers take memfd mappings for anonymous memory. The file is
    unlinked at once: profilers open it through /proc/PID/map_files.
    """
    try:
        file, path = tempfile.mkstemp(prefix="otel_thread_ctx-", suffix=".so")
    except OSError:
        return _load_memfd(content)
    try:
        with os.fdopen(file, "wb") as writer:
            writer.write(content)
        return ctypes.CDLL(path), os.path.realpath(path)
    except OSError:  # a full disk, or mounted noexec
        return _load_memfd(content)
    finally:
        os.unlink(path)


def _load_memfd(content: bytes) -> tuple[ctypes.CDLL, str]:
    try:
        file = os.memfd_create("otel_thread_ctx.so")
        try:
            os.write(file, content)
            return ctypes.CDLL(f"/proc/self/fd/{file}"), "/memfd:otel_thread_ctx.so"
        finally:
            os.close(file)
    except OSError as error:
        raise Unsupported(f"no shared object can be loaded: {error}") from None


def _descriptor_word(path: str, descriptor: int) -> int:
    """Returns the second word of the TLS descriptor, as the dynamic linker filled it in."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            fields = line.rstrip("\n").split(maxsplit=5)
            if len(fields) == 6 and fields[5].removesuffix(" (deleted)") == path and int(fields[2], 16) == 0:
                base = int(fields[0].partition("-")[0], 16)
                return ctypes.c_int64.from_address(base + descriptor + 8).value
    raise Unsupported("the loaded shared object does not show in /proc/self/maps")
