"""Bodies that would take much more memory than they have bytes."""

import gzip
import time
from collections.abc import Iterator

import pytest

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
    "packed pprof": (PUSH, PROTO, nested(1, 2, 1, of=gzip.compress(b"\x32\0" * MANY))),
    "pprof strings": (PPROF, "", b"\x32\0" * MANY),
    "pprof samples": (PPROF, "", b"\x12\0" * MANY),
    "frames": (TEXT + "folded", "", b"a;" * MANY + b"a 1"),
    "lines": (TEXT + "lines", "", b"a\n" * MANY),
    "speedscope": (TEXT + "speedscope", "", b'{"shared":{"frames":[%s{}]}}' % (b"{}," * MANY)),
    "parca": ("/profiles/writeraw", JSON, b'{"series":[%s{}]}' % (b"{}," * MANY)),
}


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
    with memory.request() as other:  # what was taken, and refused, is free again: one alone may have any size
        other.before_reading(bytes(gateway.settings.reading_bytes))
        assert other.used == 5 * gateway.settings.reading_bytes
