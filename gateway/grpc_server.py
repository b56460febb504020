"""OTLP/gRPC, on a thread and an event loop of its own (opentelemetry.io/docs/specs/otlp)."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server

from gateway import metrics
from gateway.errors import Refused, unavailable
from gateway.grpc_health import GrpcHealth
from gateway.intake import Intake
from gateway.otlp_intake import take_profiles, take_spans
from gateway.publisher import BatchPublisher
from gateway.readers.otlp_revision import HEADER, check_revision
from gateway.settings import GatewaySettings
from gateway.tls import Tls
from icestream.http.head_deadline import HEAD_S
from icestream.http.room import Room
from icestream.http.server import DESCRIPTORS, ServerError
from icestream.process.descriptors import raise_limit

PROFILES = "opentelemetry.proto.collector.profiles.v1development.ProfilesService"
TRACES = "opentelemetry.proto.collector.trace.v1.TraceService"

_GRACE_S = 5.0
_STATUS = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    415: grpc.StatusCode.INVALID_ARGUMENT,
    503: grpc.StatusCode.UNAVAILABLE,
}

_log = logging.getLogger(__name__)

T = TypeVar("T")
Context: TypeAlias = "grpc.aio.ServicerContext[bytes, Message]"
Take = Callable[[bytes], Awaitable[Message]]
"""Takes a request in; returns the answer once Kafka has everything. Raises Refused."""


class GrpcServer:
    """Serves from its construction on, until `close`."""

    def __init__(
        self, settings: GatewaySettings, publisher: BatchPublisher, intake: Intake, tls: Tls | None = None
    ) -> None:
        """Raises ServerError if it cannot listen."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="grpc", daemon=True)
        self._thread.start()
        try:
            self._server, self._health, self._calls, self.port = self._run(_start(settings, publisher, intake, tls))
        except RuntimeError as error:
            self._end()
            raise ServerError(f"cannot listen on {settings.gateway_grpc_listen}: {error}") from None
        _log.info("serving OTLP/gRPC at %s (port %d)", settings.gateway_grpc_listen, self.port)

    def close(self) -> None:
        """Takes no more requests, and returns once pending ones are answered, or after 5 s."""
        self._run(self._health.end())
        self._run(self._server.stop(_GRACE_S))
        self._run(self._calls.end())
        self._end()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _start(
    settings: GatewaySettings, publisher: BatchPublisher, intake: Intake, tls: Tls | None
) -> tuple[grpc.aio.Server, GrpcHealth, "_Calls", int]:
    options = [
        ("grpc.max_receive_message_length", settings.unpacked_bytes),  # also after gzip
        ("grpc.so_reuseport", 0),
        ("grpc.server_handshake_timeout_ms", int(HEAD_S * 1000)),
        ("grpc.max_allowed_incoming_connections", raise_limit(DESCRIPTORS) // 4),  # HTTP takes at most half
        # Calls of a connection. Those beyond `gateway_max_requests` are refused at once; what is still beyond waits.
        ("grpc.max_concurrent_streams", 4 * settings.gateway_max_requests + 16),
    ]
    server = grpc.aio.server(options=options)
    calls = _Calls(settings.gateway_max_requests, settings.gateway_body_s)
    profiles, spans = _takes(settings, intake)
    handlers = [calls.handler(PROFILES, profiles, _check_profiles), calls.handler(TRACES, spans)]
    server.add_generic_rpc_handlers(handlers)
    health = GrpcHealth((PROFILES, TRACES), publisher.ready)
    add_HealthServicer_to_server(health, server)
    listen = settings.gateway_grpc_listen
    port = server.add_secure_port(listen, tls.grpc_credentials()) if tls else server.add_insecure_port(listen)
    await server.start()
    return server, health, calls, port


def _check_profiles(context: Context) -> None:
    """Raises Refused."""
    check_revision([str(value) for name, value in context.invocation_metadata() or () if name == HEADER])


def _takes(settings: GatewaySettings, intake: Intake) -> tuple[Take, Take]:
    """For profiles and for spans. Requests come as bytes, and are parsed in a thread."""

    async def profiles(request: bytes) -> Message:
        with intake.memory.request() as reading:
            reading.hold(len(request))
            return await take_profiles(intake, reading, request, settings.gateway_max_series)

    async def spans(request: bytes) -> Message:
        with intake.memory.request() as reading:
            reading.hold(len(request))
            return await take_spans(intake, reading, request)

    return profiles, spans


class _Calls:
    """Calls of the method Export, which every service of OTLP has, with one limit for all services."""

    def __init__(self, most: int, body_s: float) -> None:
        """`body_s`: within which the message of a call must have come."""
        self._free = most
        self._coming = Room(most)  # each may take the memory of a message
        self._body_s = body_s
        self._works: set[asyncio.Future[Message]] = set()

    def handler(
        self, service: str, take: Take, check: Callable[[Context], None] = lambda context: None
    ) -> grpc.GenericRpcHandler:
        """`check` raises Refused where a request shall not be read."""

        async def export(requests: AsyncIterator[bytes], context: Context) -> Message:
            return await self._export(f"{service}/Export", take, requests, context, check)

        # A stream that has one request: so it is read, and unpacked, only if the call is worked on.
        method = grpc.stream_unary_rpc_method_handler(
            export, response_serializer=lambda answer: answer.SerializeToString()
        )
        return grpc.method_handlers_generic_handler(service, {"Export": method})

    async def _export(
        self, route: str, take: Take, requests: AsyncIterator[bytes], context: Context,
        check: Callable[[Context], None],
    ) -> Message:  # fmt: skip
        started, status = time.perf_counter(), "UNKNOWN"
        try:
            check(context)
            answer = await self._take(route, take, requests, context.peer().rpartition(":")[0])
            status = "OK"
            return answer
        except Refused as error:
            metrics.REFUSED.labels(error.code).inc()
            code = _STATUS.get(error.status, grpc.StatusCode.INTERNAL)
            status = code.name
            await context.abort(code, error.message)
            raise  # not reached: abort raises
        except asyncio.CancelledError:  # the sender has given up
            status = grpc.StatusCode.CANCELLED.name
            raise
        finally:
            metrics.REQUESTS.labels(route, status).inc()
            metrics.SECONDS.labels(route).observe(time.perf_counter() - started)

    async def _take(self, route: str, take: Take, requests: AsyncIterator[bytes], peer: str) -> Message:
        request = await self._receive(requests, peer)
        # gRPC's own limit answers RESOURCE_EXHAUSTED, after which senders drop what they have.
        if self._free <= 0:
            raise unavailable("too many requests at the same time", "busy")
        self._count(1)
        metrics.BODY_BYTES.labels(route).inc(len(request))
        # Where the sender gives up, its thread goes on: until that ends, the call and its memory count.
        work = asyncio.ensure_future(take(request))
        self._works.add(work)
        work.add_done_callback(self._ended)
        return await asyncio.shield(work)

    async def _receive(self, requests: AsyncIterator[bytes], peer: str) -> bytes:
        timeout = asyncio.timeout(self._body_s)
        try:
            async with timeout:
                self._coming.enter(timeout, peer, lambda: timeout.reschedule(0))
                return await anext(requests)
        except StopAsyncIteration:
            raise Refused(400, "bad_body", "no message came") from None
        except TimeoutError:
            message = f"the message did not come within {self._body_s:g} s, or sooner, as many others wait for theirs"
            raise unavailable(message) from None
        finally:
            self._coming.exit(timeout)

    async def end(self) -> None:
        """Waits for what senders have given up."""
        if self._works:
            await asyncio.wait(self._works, timeout=_GRACE_S)

    def _ended(self, work: "asyncio.Future[Message]") -> None:
        self._works.discard(work)
        self._count(-1)
        if not work.cancelled():
            work.exception()  # so that asyncio does not log what only a sender that has given up would be told

    def _count(self, calls: int) -> None:
        self._free -= calls
        metrics.RUNNING.inc(calls)
