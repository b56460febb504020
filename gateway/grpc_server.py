"""OTLP/gRPC, on a thread and an event loop of its own (opentelemetry.io/docs/specs/otlp)."""

import asyncio
import logging
import threading
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

import grpc
from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import ExportProfilesServiceResponse

from gateway import metrics
from gateway.errors import Refused, unavailable
from gateway.intake import Intake
from gateway.otlp_intake import take_profiles
from gateway.readers.otlp import parse_profiles
from gateway.settings import GatewaySettings
from icestream.http_server import ServerError

PROFILES = "opentelemetry.proto.collector.profiles.v1development.ProfilesService"

_MB = 10**6
_GRACE_S = 5.0
_STATUS = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    415: grpc.StatusCode.INVALID_ARGUMENT,
    503: grpc.StatusCode.UNAVAILABLE,
}

_log = logging.getLogger(__name__)

T = TypeVar("T")


class GrpcServer:
    """Serves from its construction on, until `close`."""

    def __init__(self, settings: GatewaySettings, intake: Intake) -> None:
        """Raises ServerError if it cannot listen."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="grpc", daemon=True)
        self._thread.start()
        try:
            self._server, self.port = self._run(_start(settings, intake))
        except RuntimeError as error:
            self._end()
            raise ServerError(f"cannot listen on {settings.gateway_grpc_listen}: {error}") from None
        _log.info("serving OTLP/gRPC at %s (port %d)", settings.gateway_grpc_listen, self.port)

    def close(self) -> None:
        """Takes no more requests, and returns once pending ones are answered, or after 5 s."""
        self._run(self._server.stop(_GRACE_S))
        self._end()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _start(settings: GatewaySettings, intake: Intake) -> tuple[grpc.aio.Server, int]:
    options = [
        ("grpc.max_receive_message_length", settings.gateway_unpacked_mb * _MB),  # also after gzip
        ("grpc.so_reuseport", 0),
    ]
    server = grpc.aio.server(options=options)
    export = grpc.unary_unary_rpc_method_handler(
        _Profiles(settings, intake).export, response_serializer=ExportProfilesServiceResponse.SerializeToString
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(PROFILES, {"Export": export}),))
    port = server.add_insecure_port(settings.gateway_grpc_listen)
    await server.start()
    return server, port


class _Profiles:
    """Calls of PROFILES. Requests come as bytes, and are parsed in a thread."""

    def __init__(self, settings: GatewaySettings, intake: Intake) -> None:
        self._settings = settings
        self._intake = intake
        self._running = 0

    async def export(
        self, request: bytes, context: "grpc.aio.ServicerContext[bytes, ExportProfilesServiceResponse]"
    ) -> ExportProfilesServiceResponse:
        route, started, status = f"{PROFILES}/Export", time.perf_counter(), "UNKNOWN"
        metrics.BODY_BYTES.labels(route).inc(len(request))
        try:
            answer = await self._take(request)
            status = "OK"
            return answer
        except Refused as error:
            metrics.REFUSED.labels(error.code).inc()
            code = _STATUS.get(error.status, grpc.StatusCode.INTERNAL)
            status = code.name
            await context.abort(code, error.message)
            raise  # not reached: abort raises
        finally:
            metrics.REQUESTS.labels(route, status).inc()
            metrics.SECONDS.labels(route).observe(time.perf_counter() - started)

    async def _take(self, request: bytes) -> ExportProfilesServiceResponse:
        # gRPC's own limit answers RESOURCE_EXHAUSTED, after which senders drop what they have.
        if self._running >= self._settings.gateway_max_requests:
            raise unavailable("too many requests at the same time", "busy")
        self._running += 1
        metrics.RUNNING.inc()
        try:
            return await take_profiles(self._intake, lambda: parse_profiles(request), self._settings.gateway_max_series)
        finally:
            self._running -= 1
            metrics.RUNNING.dec()
