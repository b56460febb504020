"""grpc.health.v1.Health, which says over gRPC what /readyz says (grpc.io/docs/guides/health-checking)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthServicer

_WATCH_S = 5.0


class GrpcHealth(HealthServicer):  # type: ignore[misc]  # comes without types
    """All services can do their work, or none can."""

    def __init__(self, services: Collection[str], not_ready: Callable[[], str | None]) -> None:
        """`not_ready` returns why the services cannot do their work, or None; it may block."""
        self._services = {"", *services}
        self._not_ready = not_ready
        self._asking: asyncio.Task[str | None] | None = None
        self._ending = asyncio.Event()

    async def end(self) -> None:
        """Ends what `Watch` answers: the server would wait for it."""
        self._ending.set()
        if self._asking is not None:
            await self._asking

    async def Check(
        self, request: HealthCheckRequest, context: "grpc.aio.ServicerContext[HealthCheckRequest, HealthCheckResponse]"
    ) -> HealthCheckResponse:
        if request.service not in self._services:
            names = ", ".join(sorted(filter(None, self._services)))
            await context.abort(grpc.StatusCode.NOT_FOUND, f"expected no service, or one of {names}")
        return HealthCheckResponse(status=await self._status(request.service))

    async def Watch(
        self, request: HealthCheckRequest, context: "grpc.aio.ServicerContext[HealthCheckRequest, HealthCheckResponse]"
    ) -> AsyncIterator[HealthCheckResponse]:
        """Says the status at once, and again when it has changed."""
        last = None
        while not self._ending.is_set():
            if (status := await self._status(request.service)) != last:
                last = status
                yield HealthCheckResponse(status=status)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), _WATCH_S)

    async def _status(self, service: str) -> int:
        if service not in self._services:
            return int(HealthCheckResponse.SERVICE_UNKNOWN)
        reason = await self._ask()
        return int(HealthCheckResponse.SERVING if reason is None else HealthCheckResponse.NOT_SERVING)

    async def _ask(self) -> str | None:
        """Asks once for all that want to know at the same time."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(asyncio.to_thread(self._not_ready))
        return await asyncio.shield(self._asking)
