"""Requests of 64 MiB, which OTLP recommends as the limit, with the limits that a gateway has by default."""

import gzip
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import ExportProfilesServiceResponse

from gateway.readers.otlp_json import parse_profiles
from gateway.reading_memory import PROFILE_ELEMENT_BYTES, Reading, ReadingMemory, protobuf_elements
from gateway.settings import GatewaySettings
from icestream.settings import KafkaSettings
from tests.gateway.http.test_otlp_profiles import push, service
from tests.gateway.otlp import Otlp, field_of
from tests.gateway.served import Gateway, serve
from tests.waiting import PATIENCE_S

RECOMMENDED = 64 * 2**20
CAPTURED = Path(__file__).parents[1] / "captured/otel_ebpf_profiler.json"


@pytest.fixture
def gateway(in_process_broker: KafkaSettings) -> Iterator[Gateway]:
    """One with the limits that it has."""
    yield from serve(GatewaySettings(kafka=in_process_broker.kafka, gateway_ack_s=PATIENCE_S))


def with_payload(size: int) -> bytes:
    """A profile of a newer version, whose payloads we do not know: 12 of the profile, 8 of the dictionary."""
    made = service("payload")
    payload = bytes(size // 2)
    made.profile.MergeFromString(field_of(12, payload))
    made.data.dictionary.MergeFromString(field_of(8, payload))
    return made.data.SerializeToString()


@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_a_request_of_64_mib_is_taken_without_its_payloads_which_are_counted(gateway: Gateway, encoding: str) -> None:
    body = with_payload(RECOMMENDED - 1000)
    packed, headers = (gzip.compress(body, 1), {"content-encoding": encoding}) if encoding else (body, {})
    answer = push(gateway.http, packed, **headers)
    assert answer.status_code == 200, answer.content
    told = ExportProfilesServiceResponse.FromString(answer.content).partial_success
    unknown = len(with_payload(0)) - len(service("payload").data.SerializeToString())
    assert (told.rejected_profiles, told.error_message.partition(" ")[2]) == (0, "unknown_bytes dropped")
    assert RECOMMENDED - 1000 <= int(told.error_message.partition(" ")[0]) <= RECOMMENDED - 1000 + 2 * unknown + 20
    (batch,) = gateway.batches()
    assert batch.series == [(("service", "payload"),)]


def test_a_request_of_64_mib_as_dense_as_the_ebpf_profilers_finds_room() -> None:
    one = parse_profiles(CAPTURED.read_bytes()).SerializeToString()
    reading = Reading(ReadingMemory(GatewaySettings().reading_bytes))
    body = one * (RECOMMENDED // len(one))
    reading.hold(2 * len(body))  # as it came, and without its Content-Encoding
    reading.before_reading(body, protobuf_elements, PROFILE_ELEMENT_BYTES)


def test_an_older_version_is_recognised_beside_a_large_payload(gateway: Gateway) -> None:
    made: Otlp = service("older")
    made.profile.MergeFromString(field_of(12, bytes(3_000_000)) + field_of(3, b"\1"))
    made.profile.time_unix_nano = time.time_ns()
    answer = push(gateway.http, made.data.SerializeToString())
    assert (answer.status_code, b"1.7" in answer.content) == (415, True)
