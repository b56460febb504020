"""What processes publish about themselves, read from outside."""

import ctypes
import mmap
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.labels.process_context import ContextReader, find_mapping, parse
from tests.tracing import outside

TRACED = """
import os, sys
from icestream import tracing
from icestream.tracing import process_context
for line in sys.stdin:
    command, _, name = line.strip().partition(" ")
    if command == "start":
        tracing.start(service=name, socket="/nonexistent")
    elif command == "stop":
        tracing.stop()
    print(command, flush=True)
"""


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


class Child:
    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.pid = process.pid

    def say(self, line: str) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline().strip() == line.split()[0]


@contextmanager
def child() -> Iterator[Child]:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", TRACED], stdin=pipe, stdout=pipe, text=True) as process:
        yield Child(process)
        assert process.stdin
        process.stdin.close()


def test_a_traced_process_is_read_when_it_publishes_and_again_when_that_changes() -> None:
    clock = Clock()
    with child() as traced:
        reader = ContextReader(traced.pid, clock)
        traced.say("nothing")
        assert not reader.look()
        assert reader.attributes == {}
        traced.say("start my shop")
        assert not reader.look(), "the next look is a second later"
        clock.now = 1.5
        assert reader.look()
        assert reader.attributes["service.name"] == "my shop"
        assert reader.attributes["telemetry.sdk.language"] == "python"
        payload = outside.process_context(traced.pid)
        assert payload is not None
        assert parse(payload) == reader.attributes
        clock.now = 10
        assert not reader.look(), "nothing changed"
        traced.say("stop")
        traced.say("start other")
        for _ in range(3):
            clock.now += 10
            reader.look()
        assert reader.attributes["service.name"] == "other"
    clock.now += 100
    assert not reader.look()
    assert reader.attributes["service.name"] == "other", "what is known of a process stays when it ends"


def test_a_process_without_a_context_and_one_that_is_gone_have_none() -> None:
    with child() as silent:
        silent.say("nothing")
        assert find_mapping(silent.pid) is None
    assert not ContextReader(2**22 + 1).look()
    assert not ContextReader(2).look(), "a thread of the kernel"


class Published:
    """A context in this process, which may be anything."""

    def __init__(self, name: bytes = b"OTEL_CTX") -> None:
        file = os.memfd_create(name.decode())
        os.ftruncate(file, 8192)
        self.memory = mmap.mmap(file, 8192)
        os.close(file)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def write(self, payload: bytes, **header: int | bytes) -> None:
        fields = {"signature": b"OTEL_CTX", "version": 2, "size": len(payload), "time": 1, "at": self.address + 32}
        packed = struct.pack("<8sIIQQ", *(fields | header).values())
        self.memory[: 32 + len(payload)] = packed + payload


@pytest.fixture(scope="module")
def published() -> Published:
    return Published()


def test_a_mapping_without_a_file_is_found_by_the_name_it_was_given() -> None:
    program = """if True:
        import ctypes, mmap, sys
        memory = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        arguments = [ctypes.c_ulong(n) for n in (0, address, 4096)]
        failed = ctypes.CDLL(None).prctl(0x53564D41, *arguments, b"OTEL_CTX")  # PR_SET_VMA, PR_SET_VMA_ANON_NAME
        print(failed, address, flush=True)
        sys.stdin.read()
    """
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout
        failed, address = map(int, process.stdout.readline().split())
        try:
            assert find_mapping(process.pid) == (None if failed else address)
        finally:
            process.communicate()


def resource(**attributes: str) -> bytes:
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource

    found = Resource(
        attributes=[
            KeyValue(key=name.replace("_", "."), value=AnyValue(string_value=v)) for name, v in attributes.items()
        ]
    ).SerializeToString()
    return b"\x0a" + bytes([len(found) & 0x7F | 0x80, len(found) >> 7]) + found


def looked(published: Published, payload: bytes, **header: int | bytes) -> dict[str, str]:
    published.write(payload, **header)
    reader = ContextReader(os.getpid())
    reader.look()
    return reader.attributes


def test_attributes_are_read_as_opentelemetry_writes_them(published: Published) -> None:
    attributes = looked(published, resource(service_name="shop", service_version="1.4", x="é\x1b\n"))
    assert attributes == {"service.name": "shop", "service.version": "1.4", "x": "é?"}
    values = (
        b"\x0a\x18" + b"\x0a\x07\x0a\x01b\x12\x02\x10\x01" + b"\x0a\x0d\x0a\x01i\x12\x08\x18" + b"\xff" * 6 + b"\x01"
    )
    assert parse(values) == {"b": "true", "i": str((1 << 43) - 1)}


@pytest.mark.parametrize(
    "header",
    [
        {"signature": b"OTEL_CTY"}, {"version": 3}, {"time": 0}, {"size": 1 << 31}, {"size": 4_000_000_000},
        {"at": 0}, {"at": 1 << 63}, {"at": (1 << 64) - 1}, {"at": 16},
    ],
)  # fmt: skip
def test_a_header_that_cannot_be_true_tells_nothing(published: Published, header: dict[str, int | bytes]) -> None:
    assert looked(published, resource(service_name="shop"), **header) == {}


@given(st.binary(max_size=200) | st.binary(max_size=100).map(lambda rest: resource(service_name="shop") + rest))
def test_any_payload_is_taken(payload: bytes) -> None:
    for name, value in parse(payload).items():
        assert name
        assert value.isprintable()
        assert len(value) <= 200


def test_a_payload_full_of_attributes_is_bounded() -> None:
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource

    many = [KeyValue(key=f"k{i}", value=AnyValue(string_value="v" * 5000)) for i in range(1000)]
    content = Resource(attributes=many).SerializeToString()
    size = b""
    length = len(content)
    while length:
        size += bytes([length & 0x7F | (0x80 if length > 0x7F else 0)])
        length >>= 7
    found = parse(b"\x0a" + size + content)
    assert len(found) == 256
    assert max(map(len, found.values())) == 200
