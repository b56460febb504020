"""Bodies that would take much more memory than they have bytes."""

import gzip
import time
from collections.abc import Iterator

import pytest

from gateway.errors import Refused
from gateway.reading_memory import MAX_ELEMENTS
from gateway.settings import GatewaySettings
from icestream.settings import KafkaSettings
from tests.gateway.profiles import simple
from tests.gateway.served import Gateway, code, serve
from tests.waiting import PATIENCE_S

OTLP, PUSH, PPROF = "/v1development/profiles", "/push.v1.PusherService/Push", "/api/v1/ingest/pprof?service=a"
TEXT = "/ingest?name=a&format="
PROTOBUF, PROTO, JSON = "application/x-protobuf", "application/proto", "application/json"
MANY = MAX_ELEMENTS + 1


@pytest.fixture
def gateway(in_process_broker: KafkaSettings) -> Iterator[Gateway]:
    """One with the limits that it has."""
    yield from serve(GatewaySettings(kafka=in_process_broker.kafka, gateway_ack_s=PATIENCE_S))


def nested(*numbers: int, of: bytes) -> bytes:
    """A message in these fields of messages, outermost first."""
    for number in reversed(numbers):
        size, length = len(of), bytearray()
        while size > 127:
            length.append(size & 127 | 128)
            size >>= 7
        of = bytes([number << 3 | 2, *length, size]) + of
    return of


HOSTILE = {
    "resources": ("/v1/traces", PROTOBUF, b"\x0a\0" * MANY),
    "spans": ("/v1/traces", PROTOBUF, nested(1, 2, of=b"\x12\0" * MANY)),
    "attributes": ("/v1/traces", PROTOBUF, nested(1, 2, 2, of=b"\x4a\0" * MANY)),
    "spans in JSON": ("/v1/traces", JSON, b'{"resourceSpans":[{"scopeSpans":[{"spans":[%s{}]}]}]}' % (b"{}," * MANY)),
    "unknown JSON": ("/v1/traces", JSON, b'{"other":[%s[]]}' % (b"[]," * MANY)),
    "profiles": (OTLP, PROTOBUF, nested(1, 2, of=b"\x12\0" * MANY)),
    "strings": (OTLP, PROTOBUF, nested(2, of=b"\x2a\0" * MANY)),
    "profiles in JSON": (OTLP, JSON, b'{"resourceProfiles":[%s{}]}' % (b"{}," * MANY)),
    "series": (PUSH, PROTO, b"\x0a\0" * MANY),
    "labels": (PUSH, PROTO, nested(1, of=b"\x0a\0" * MANY)),
    "series in JSON": (PUSH, JSON, b'{"series":[%s{}]}' % (b"{}," * MANY)),
    "lengths with more bytes than they need": ("/v1/traces", PROTOBUF, nested(1, 2, of=b"\x12\x80\0" * MANY)),
    "tags with more bytes than they need": ("/v1/traces", PROTOBUF, nested(1, 2, of=b"\x92\0\0" * MANY)),
    "packed pprof": (PUSH, PROTO, nested(1, 2, 1, of=gzip.compress(b"\x32\0" * MANY))),
    "pprof strings": (PPROF, "", b"\x32\0" * MANY),
    "pprof samples": (PPROF, "", b"\x12\0" * MANY),
    "frames": (TEXT + "folded", "", b"a;" * MANY + b"a 1"),
    "lines": (TEXT + "lines", "", b"a\n" * MANY),
    "speedscope": (TEXT + "speedscope", "", b'{"shared":{"frames":[%s{}]}}' % (b"{}," * MANY)),
    "parca": ("/profiles/writeraw", JSON, b'{"series":[%s{}]}' % (b"{}," * MANY)),
}


ATTRIBUTES = nested(1, of=nested(1, of=b"\x0a\0" * 1001) + nested(2, of=b"\x12\0"))
TEXTS = nested(2, of=b"\x2a\0")
COSTLY = {
    "resources": ("/v1/traces", PROTOBUF, b"\x0a\0" * 100_001, (413, b"100000 resources")),
    "empty profiles": (OTLP, PROTOBUF, nested(1, 2, of=b"\x12\0" * 10_001), (413, b"10000 profiles")),
    "pushed profiles": (PUSH, PROTO, nested(1, of=nested(2, 1, of=b"\x32\0") * 10_001), (413, b"10000 profiles")),
    "unknown groups": (OTLP, PROTOBUF, nested(1, 2, 2, of=b"\x7b\x7c" * 1_100_000) + TEXTS, (400, b"unknown fields")),
    "unknown numbers": (OTLP, PROTOBUF, nested(1, 2, 2, of=b"\x78\0" * 1_100_000) + TEXTS, (400, b"unknown fields")),
    "attributes": (OTLP, PROTOBUF, ATTRIBUTES + TEXTS, (200, b"at most 1000")),
}


@pytest.mark.parametrize("kind", COSTLY)
def test_what_costs_much_more_than_its_bytes_has_limits(gateway: Gateway, kind: str) -> None:
    """Each takes microseconds to milliseconds to read, or kilobytes."""
    path, content_type, body, (status, told) = COSTLY[kind]
    answer = gateway.http.post(path, content=body, headers={"content-type": content_type})
    assert (answer.status_code, told in answer.content) == (status, True), answer.content
    assert gateway.batches() == []


@pytest.mark.parametrize("kind", HOSTILE)
def test_more_elements_than_a_body_may_have_are_not_parsed(gateway: Gateway, kind: str) -> None:
    """In gzip, each of these bodies is a few kB. 64 MB of empty spans took 5 GB."""
    path, content_type, body = HOSTILE[kind]
    headers = {"content-type": content_type, "content-encoding": "gzip"}
    answer = gateway.http.post(path, content=gzip.compress(body, 1), headers=headers)
    assert (answer.status_code, b"elements" in answer.content) == (413, True)
    assert gateway.batches() == []


def test_where_others_take_the_memory_a_request_shall_come_again(gateway: Gateway) -> None:
    memory, profile = gateway.intake.memory, simple({("main", "work"): (1, 10)})
    profile.time_nanos = time.time_ns()
    body = profile.SerializeToString()
    with memory.request() as other:
        other.before_reading(bytes(gateway.settings.reading_bytes // 5 - len(body)))
        busy = gateway.http.post(PPROF, content=body)
        assert (code(busy), busy.headers["retry-after"]) == ((503, "busy"), "1")
    assert gateway.http.post(PPROF, content=body).status_code == 200
    assert gateway.http.post(PPROF, content=b"\xff").status_code == 400
    assert memory.used == 0  # what was taken, and refused, is free again
    with memory.request() as other, pytest.raises(Refused, match="bytes of memory"):
        other.before_reading(bytes(gateway.settings.reading_bytes // 5 + 1))
