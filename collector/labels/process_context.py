"""What a process says about itself: the OpenTelemetry process context (OTEP 4719), read from its memory.

A mapping named OTEL_CTX begins with a header of 32 bytes: signature, u32 version, u32 size of the payload, u64 time of
publication (0: being written), u64 address of the payload, a message ProcessContext{resource = 1, attributes = 2} whose
resource is OTLP's. Whatever a process shows there is bounded and checked: it may be anything.
"""

import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from collector.labels.text import clean
from collector.processes import memory, pages
from collector.processes.process import folder_of

_HEADER = struct.Struct("<8sIIQQ")
_SIGNATURE, _VERSION = b"OTEL_CTX", 2
_NAMES = (b"/memfd:OTEL_CTX", b"[anon_shmem:OTEL_CTX]", b"[anon:OTEL_CTX]")
_MAX_PAYLOAD = 64 << 10
_MAX_ATTRIBUTES = 256
_MAX_MAPS = 32 << 20
_CHUNK = 1 << 14
_LOOK_AGAIN = (1.0, 2.0, 5.0, 60.0)  # seconds after the previous look; the last one repeats
_REREAD = 5.0
_PAUSE_PER_COST = 2000  # looking at a process takes at most 0.05 % of a CPU

Attributes = dict[str, str]


@dataclass(slots=True)
class ContextReader:
    """The context of one process, while it runs one program. It may be published at any time and change at any time:
    `look` is for every few seconds, searches the mappings 0, 1, 3, 8 seconds after the first and then every 60, and
    afterwards reads 32 bytes."""

    pid: int
    clock: Callable[[], float] = time.monotonic
    is_gone: Callable[[], bool] = lambda: False  # whether another process has this ID
    attributes: Attributes = field(default_factory=dict)  # of the resource, as they were read last
    _address: int | None = None
    _published: int = 0
    _due: float = float("-inf")
    _looks: int = 0

    def look(self) -> bool:
        """Returns whether `attributes` changed. Those of a process that is gone stay."""
        now = self.clock()
        if now < self._due:
            return False
        self._due = now + _REREAD
        before = self.attributes
        try:
            published = memory.patiently(self.pid, partial(_read, self.pid, self._address, self._published))
        except TimeoutError:
            self._due = now + _LOOK_AGAIN[-1]
            return False
        except OSError:  # the process is gone, or the address is none
            published = None
        self._address = None if published is None else published.address
        if published is None:
            pause = _LOOK_AGAIN[min(self._looks, len(_LOOK_AGAIN) - 1)]
            self._due = now + max(pause, _PAUSE_PER_COST * (self.clock() - now))
            self._looks += 1
        elif published.context and not self.is_gone():
            self._published, self.attributes = published.when, parse(published.context)
        return self.attributes != before


class _Published(NamedTuple):
    address: int
    when: int = 0
    context: bytes = b""  # if it is another one than before


def _read(pid: int, address: int | None, before: int) -> _Published | None:
    """What a process publishes at an address; without one, looks for it. `before`: when it published what is known.
    Raises OSError."""
    if address is None:
        address = find_mapping(pid)
    if address is None:
        return None
    (header,) = pages.read(pid, [(address, _HEADER.size)])
    if header is None:
        raise OSError("the mapping is gone")
    signature, version, size, when, payload = _HEADER.unpack(header)
    if (signature, version) != (_SIGNATURE, _VERSION):
        raise OSError("not a process context")
    if when in (0, before) or size > _MAX_PAYLOAD:
        return _Published(address)
    content, again = pages.read(pid, [(payload, size), (address, _HEADER.size)])
    if content is None or again != header:
        return _Published(address)  # being written: the next look finds it complete
    return _Published(address, when, content)


def find_mapping(pid: int) -> int | None:
    """The address of the mapping; None where the process has none. Raises OSError."""
    with open(f"{folder_of(pid)}/maps", "rb", buffering=0) as maps:
        rest = b""
        for _ in range(_MAX_MAPS // _CHUNK):
            chunk = maps.read(_CHUNK)
            if not chunk:
                break
            complete, _, rest = (rest + chunk).rpartition(b"\n")
            if b"OTEL_CTX" in complete:
                for line in complete.splitlines():
                    fields = line.split(None, 5)
                    if len(fields) == 6 and fields[5].startswith(_NAMES):
                        return int(fields[0].partition(b"-")[0], 16)
    return None


def parse(context: bytes) -> Attributes:
    """The attributes of the resource that are strings, booleans or integers, as text; what is malformed ends it."""
    attributes: Attributes = {}
    try:
        for resource in _messages(context, 1):
            for attribute in _messages(resource, 1):
                key = next(_messages(attribute, 1), b"").decode("utf-8", "replace")
                text = next((_text(value) for value in _messages(attribute, 2)), None)
                if key and text is not None and len(attributes) < _MAX_ATTRIBUTES:
                    attributes[key] = text
    except ValueError:
        pass
    return attributes


def _text(value: bytes) -> str | None:
    """AnyValue: string_value = 1, bool_value = 2, int_value = 3; others are None."""
    for number, content in _fields(value):
        if number == 1 and isinstance(content, bytes):
            return clean(content[:1000].decode("utf-8", "replace"))
        if number == 2 and isinstance(content, int):
            return "true" if content else "false"
        if number == 3 and isinstance(content, int):
            return str(content - (1 << 64) if content >> 63 else content)
    return None


def _messages(content: bytes, number: int) -> Iterator[bytes]:
    return (value for n, value in _fields(content) if n == number and isinstance(value, bytes))


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of a protobuf message: of varints an unsigned 64-bit number, else bytes. Raises ValueError."""
    at = 0
    while at < len(content):
        tag, at = _varint(content, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(content, at)
            yield tag >> 3, value
            continue
        if kind == 2:
            size, at = _varint(content, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError("no such kind of field")
        if size > len(content) - at:
            raise ValueError("truncated")
        yield tag >> 3, content[at : at + size]
        at += size


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(content):
            break
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, at
    raise ValueError("no number")
