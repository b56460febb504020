"""OTLP/gRPC with a real client."""

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import ExportProfilesServiceRequest
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2_grpc import ProfilesServiceStub
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from prometheus_client import REGISTRY

from gateway.grpc_server import PROFILES, TRACES, GrpcServer, _Calls
from gateway.intake import Intake
from gateway.publisher import BatchPublisher
from gateway.settings import GatewaySettings
from icestream.http.server import ServerError
from icestream.messages.activity import decode_activity
from icestream.messages.raw import decode_raw
from icestream.settings import KafkaSettings
from icestream.topics import ACTIVITY, RAW
from tests.gateway.otlp import Otlp, of_samples
from tests.gateway.spans import span, traces
from tests.pipeline.reading import messages
from tests.ports import free_port
from tests.waiting import PATIENCE_S, wait_until


def serve(settings: GatewaySettings) -> Iterator[grpc.Channel]:
    publisher = BatchPublisher(settings)
    server = GrpcServer(settings, publisher, Intake(settings, publisher))
    with grpc.insecure_channel(f"127.0.0.1:{server.port}", compression=grpc.Compression.Gzip) as channel:
        yield channel
    server.close()
    publisher.close()


@pytest.fixture
def settings(in_process_broker: KafkaSettings) -> GatewaySettings:
    return GatewaySettings(
        kafka=in_process_broker.kafka,
        gateway_ack_s=PATIENCE_S,
        gateway_grpc_listen="127.0.0.1:0",
        gateway_unpacked_mb=1,
    )


@pytest.fixture
def channel(settings: GatewaySettings) -> Iterator[grpc.Channel]:
    yield from serve(settings)


def request_of(value: int) -> ExportProfilesServiceRequest:
    made = Otlp()
    made.resource_attributes({"service.name": "checkout"})
    made.profile.time_unix_nano = time.time_ns()
    made.profile.samples.add(stack_index=made.stack(made.location("jvm", [("run", "A.java", 3)])), values=[value])
    return ExportProfilesServiceRequest.FromString(made.data.SerializeToString())


def send(channel: grpc.Channel, data: bytes, service: str = PROFILES) -> grpc.StatusCode:
    """Any bytes as a request; the status of the refusal."""
    with pytest.raises(grpc.RpcError) as refused:
        channel.unary_unary(f"/{service}/Export")(data, timeout=PATIENCE_S)
    status: grpc.StatusCode = refused.value.code()  # type: ignore[attr-defined]
    return status


def test_profiles_are_taken_and_what_cannot_be_is_told(channel: grpc.Channel, settings: GatewaySettings) -> None:
    export = ProfilesServiceStub(channel).Export  # type: ignore[no-untyped-call]
    assert not export(request_of(4), timeout=PATIENCE_S).HasField("partial_success")
    assert export(request_of(-4), timeout=PATIENCE_S).partial_success.rejected_profiles == 1
    (batch,) = (decode_raw(message.value()) for message in messages(settings, RAW))
    assert batch.series == [(("service", "checkout"),)]


@pytest.mark.parametrize("revisions", [["1"], ["2"], ["1", "1"], ["01"]])
def test_profiles_of_another_revision_are_refused(
    channel: grpc.Channel, settings: GatewaySettings, revisions: list[str]
) -> None:
    metadata = [("otlp-profiles-development-version", revision) for revision in revisions]
    call = channel.unary_unary(f"/{PROFILES}/Export").future(
        request_of(4).SerializeToString(), metadata=metadata, timeout=PATIENCE_S
    )
    ours = revisions == ["1"]
    assert call.code() == (grpc.StatusCode.OK if ours else grpc.StatusCode.INVALID_ARGUMENT)
    assert len(list(messages(settings, RAW))) == ours
    spans = ExportTraceServiceRequest.FromString(traces(span(time.time_ns())).SerializeToString())
    TraceServiceStub(channel).Export(spans, metadata=metadata, timeout=PATIENCE_S)  # type: ignore[no-untyped-call]


def test_a_request_of_64_mib_is_taken(settings: GatewaySettings) -> None:
    request = request_of(4)
    request.resource_profiles[0].scope_profiles[0].profiles[0].original_payload = bytes(64 * 2**20 - 1000)
    for channel in serve(replace(settings, gateway_unpacked_mb=GatewaySettings().gateway_unpacked_mb)):
        channel.unary_unary(f"/{PROFILES}/Export")(request.SerializeToString(), timeout=PATIENCE_S)
    assert len(list(messages(settings, RAW))) == 1


def test_spans_are_taken_and_what_cannot_be_is_told(channel: grpc.Channel, settings: GatewaySettings) -> None:
    export, now = TraceServiceStub(channel).Export, time.time_ns()  # type: ignore[no-untyped-call]
    sent = traces(span(now, name="first"), span(now, span_id=bytes(8)), host_id="m1").SerializeToString()
    told = export(ExportTraceServiceRequest.FromString(sent), timeout=PATIENCE_S).partial_success
    assert (told.rejected_spans, told.error_message) == (1, "1 spans without valid IDs")
    (batch,) = (decode_activity(message.value()) for message in messages(settings, ACTIVITY))
    assert (batch.host_id, batch.spans.name.texts()) == ("m1", ["first"])


def test_what_is_none_is_refused(channel: grpc.Channel, settings: GatewaySettings) -> None:
    assert send(channel, b"\xff" * 10) == grpc.StatusCode.INVALID_ARGUMENT
    assert send(channel, b"\xff" * 10, TRACES) == grpc.StatusCode.INVALID_ARGUMENT
    assert send(channel, of_samples([], profile=b"\x42\x10" + bytes(16))) == grpc.StatusCode.INVALID_ARGUMENT
    assert send(channel, bytes(2_000_000)) == grpc.StatusCode.RESOURCE_EXHAUSTED  # a small message, gzipped
    assert list(messages(settings, RAW)) == []


def test_without_kafka_the_sender_shall_try_again() -> None:
    away = f"127.0.0.1:{free_port()}"
    settings = GatewaySettings(kafka=away, gateway_ack_s=0.3, gateway_grpc_listen="127.0.0.1:0")
    for channel in serve(settings):
        assert send(channel, request_of(4).SerializeToString()) == grpc.StatusCode.UNAVAILABLE
        spans = traces(span(time.time_ns())).SerializeToString()
        assert send(channel, spans, TRACES) == grpc.StatusCode.UNAVAILABLE


def test_beyond_the_limit_of_requests_the_sender_shall_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    refused, publish = threading.Event(), BatchPublisher.publish

    async def waits(*arguments: Any) -> None:
        assert await asyncio.to_thread(refused.wait, PATIENCE_S)
        await publish(*arguments)

    monkeypatch.setattr(BatchPublisher, "publish", waits)
    away = f"127.0.0.1:{free_port()}"
    settings = GatewaySettings(
        kafka=away, gateway_ack_s=0.3, gateway_grpc_listen="127.0.0.1:0", gateway_max_requests=1
    )  # fmt: skip
    calls: list[Any] = []
    for channel in serve(settings):
        export = channel.unary_unary(f"/{PROFILES}/Export")
        calls.extend(export.future(request_of(4).SerializeToString(), timeout=PATIENCE_S) for _ in range(2))
        wait_until(lambda: any(call.done() for call in calls))
        refused.set()
        assert [call.code() for call in calls] == [grpc.StatusCode.UNAVAILABLE] * 2
        taken, other = sorted((call.details() or "").partition(":")[0] for call in calls)
        assert taken == "Kafka did not take it"
        # As the message of the other one has come already, or has not.
        assert other in ("too many requests at the same time", NOT_COME)


NOT_COME = "the message did not come within 30 s, or sooner, as many others wait for theirs"


class NoContext:
    """The context of a call without a connection."""

    def peer(self) -> str:
        return ""


def test_a_sender_that_gives_up_is_counted_as_that() -> None:
    def cancelled() -> float:
        labels = {"route": "given.up/Export", "status": "CANCELLED"}
        return REGISTRY.get_sample_value("icestream_gateway_requests_total", labels) or 0

    async def give_up() -> None:
        ends, calls = asyncio.Event(), _Calls(1, PATIENCE_S)

        async def waits(_: bytes) -> Message:
            await ends.wait()
            raise AssertionError

        async def requests() -> AsyncIterator[bytes]:
            yield b""

        def export() -> Coroutine[Any, Any, Message]:
            return calls._export("given.up/Export", waits, requests(), NoContext(), lambda _: None)  # type: ignore[arg-type]

        call = asyncio.create_task(export())
        await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert calls._free == 0  # what it had begun cannot be ended
        ends.set()
        await asyncio.sleep(0.01)
        assert calls._free == 1

    before = cancelled()
    asyncio.run(give_up())
    assert cancelled() == before + 1


def test_a_call_whose_message_does_not_come_keeps_no_place(settings: GatewaySettings) -> None:
    ends = threading.Event()

    def nothing() -> Iterator[bytes]:
        ends.wait(PATIENCE_S)
        yield from ()

    for channel in serve(replace(settings, gateway_body_s=0.2, gateway_max_requests=1)):
        call = channel.stream_unary(f"/{TRACES}/Export").future(nothing(), timeout=PATIENCE_S)
        assert call.code() == grpc.StatusCode.UNAVAILABLE
        assert "did not come" in (call.details() or "")
        ends.set()
        none = channel.stream_unary(f"/{TRACES}/Export").future(iter(()), timeout=PATIENCE_S)
        assert none.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_calls_whose_messages_do_not_come_shut_out_nobody(settings: GatewaySettings) -> None:
    ends = threading.Event()

    def nothing() -> Iterator[bytes]:
        ends.wait(PATIENCE_S)
        yield from ()

    for channel in serve(replace(settings, gateway_max_requests=8)):
        export = channel.stream_unary(f"/{TRACES}/Export")
        calls = [export.future(nothing(), timeout=PATIENCE_S) for _ in range(30)]
        wait_until(partial(lambda calls: sum(call.done() for call in calls) == 30 - 8, calls))
        assert {call.code() for call in calls if call.done()} == {grpc.StatusCode.UNAVAILABLE}
        for _ in range(3):
            ProfilesServiceStub(channel).Export(request_of(4), timeout=PATIENCE_S)  # type: ignore[no-untyped-call]
        ends.set()


def test_a_connection_that_says_nothing_is_given_up(settings: GatewaySettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.grpc_server.HEAD_S", 0.3)
    publisher = BatchPublisher(settings)
    server = GrpcServer(settings, publisher, Intake(settings, publisher))
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S / 2) as connection:
        while connection.recv(1000):  # the server's settings
            pass
    server.close()
    publisher.close()


def test_calls_that_time_out_leave_no_memory_taken(in_process_broker: KafkaSettings) -> None:
    settings = GatewaySettings(kafka=in_process_broker.kafka, gateway_grpc_listen="127.0.0.1:0")
    publisher = BatchPublisher(settings)
    intake = Intake(settings, publisher)
    server = GrpcServer(settings, publisher, intake)
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        export = channel.unary_unary(f"/{TRACES}/Export")
        calls = [export.future(bytes(4_000_000), timeout=0.01 * number) for number in range(40)]
        for call in calls:
            assert isinstance(call.exception(), grpc.RpcError)
    server.close()
    publisher.close()
    wait_until(lambda: intake.memory.used == 0)


def test_a_port_that_is_taken_is_named(settings: GatewaySettings) -> None:
    publisher = BatchPublisher(settings)
    intake = Intake(settings, publisher)
    first = GrpcServer(settings, publisher, intake)
    taken = f"127.0.0.1:{first.port}"
    with pytest.raises(ServerError, match=taken):
        GrpcServer(GatewaySettings(kafka=settings.kafka, gateway_grpc_listen=taken), publisher, intake)
    first.close()
    publisher.close()
