"""The record of each thread and the context of the process, as others read them from outside."""

import os
import platform
import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from tests.tracing import outside
from tests.tracing.traced import OTHER, TRACE
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or os.geteuid() != 0, reason="stops threads with ptrace, knows x86-64 registers"
)

CHILD = f"""
import os, sys, threading
from icestream import tracing
tracing.start(service="read-from-outside", socket="/nonexistent/activity.sock")
told = threading.Event()
def say(what):
    os.write(1, b"%s\\n" % str(what).encode())  # print may mix what two threads say
def work(trace, span):
    with tracing.span(trace, span):
        say(threading.get_native_id())
        told.wait()
    say("left")
    left.wait()
left = threading.Event()
for trace in ("{TRACE}", "{OTHER}"):
    threading.Thread(target=work, args=(trace, trace[:16]), daemon=True).start()
for event in (told, left):
    sys.stdin.readline()
    event.set()
"""


class Child:
    """A process that publishes."""

    def __init__(self, code: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self.process.pid

    def line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def go_on(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def child() -> Iterator[Child]:
    child = Child(CHILD)
    yield child
    child.close()


def test_each_threads_record_is_found_by_the_symbol_and_the_thread_pointer(child: Child) -> None:
    tids = [int(child.line()), int(child.line())]
    path, offset = outside.publisher(child.pid)
    assert not path.startswith("/memfd:")  # which profilers take for anonymous memory
    records = {outside.thread_record(child.pid, tid, offset) for tid in tids}
    assert records == {bytes.fromhex(trace + trace[:16]) + b"\x01\x01\x00\x00" for trace in (TRACE, OTHER)}
    assert outside.thread_record(child.pid, child.pid, offset) is None
    child.go_on()
    assert {child.line(), child.line()} == {"left"}
    assert {outside.thread_record(child.pid, tid, offset) for tid in tids} == {None}


@pytest.mark.slow
def test_a_record_looked_at_any_time_is_whole() -> None:
    child = Child(
        """
import threading
from icestream import tracing
tracing.start(service="busy", socket="/nonexistent/activity.sock")
print(threading.get_native_id(), flush=True)
number = 0
while True:
    number += 1
    for half in (f"{number:016x}", f"{~number % 2**64:016x}"):
        with tracing.span(half * 2, half):
            sum(range(500))
"""
    )
    try:
        tid = int(child.line())
        _, offset = outside.publisher(child.pid)
        records: list[bytes] = []

        def look() -> bool:
            record = outside.thread_record(child.pid, tid, offset)
            records.extend([record] if record is not None else [])
            return len(records) == 120

        wait_until(look)  # between two spans there is none
    finally:
        child.close()
    for record in records:
        assert record[8:16] == record[16:24]
        assert record[24:] == b"\x01\x01\x00\x00"


def test_the_process_context_names_the_service_and_the_schema(child: Child) -> None:
    child.line()
    payload = outside.process_context(child.pid)
    assert payload is not None
    fields = _fields(payload)
    (resource,) = fields[1]
    attributes = {a.key: a.value.string_value for a in Resource.FromString(resource).attributes}
    assert attributes["service.name"] == "read-from-outside"
    extra = {pair.key: pair.value for pair in map(KeyValue.FromString, fields[2])}
    assert extra["threadlocal.schema_version"].string_value == "tlsdesc_v1_dev"
    assert isinstance(extra["threadlocal.attribute_key_map"], AnyValue)
    assert extra["threadlocal.attribute_key_map"].HasField("array_value")


def test_the_process_context_follows_a_stop_and_a_fork() -> None:
    child = Child(
        """
import os, sys
from icestream import tracing
tracing.start(service="parent", socket="/nonexistent/activity.sock")
forked = os.fork()
os.write(1, b"%d\\n" % os.getpid())  # print writes twice
if forked == 0:
    sys.stdin.readline()
    os._exit(0)
os.waitpid(forked, 0)
"""
    )
    try:
        for pid in (int(child.line()), int(child.line())):
            payload = outside.process_context(pid)
            assert payload is not None
            assert b"parent" in payload
    finally:
        child.go_on()
        child.close()


def _fields(message: bytes) -> dict[int, list[bytes]]:
    """Length-delimited fields, each shorter than 128 bytes, of a protobuf message."""
    fields: dict[int, list[bytes]] = {}
    at = 0
    while at < len(message):
        tag, size = message[at], message[at + 1]
        assert tag & 7 == 2
        assert size < 128
        fields.setdefault(tag >> 3, []).append(message[at + 2 : at + 2 + size])
        at += 2 + size
    return fields
