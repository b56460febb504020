"""A stream worker: the application, its partition tasks and the threads beside them, from start to stop."""

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Coroutine
from pathlib import Path

from icestream.http.metrics import HealthServer
from icestream.kafka.dead_letters import Rate
from icestream.messages.plausible import TimeLimits
from icestream.symbols.symcache import SymCaches
from icestream.symbols.unnamed import STARTS_VERSION
from icestream.topics import RAW
from icestream.v1.symbols_pb2 import SymbolFile
from streams.app import PartitionTasks, create
from streams.logs.logs import Logs
from streams.logs.stacks_retention import read_retention
from streams.operators.retained import RetainedLimits
from streams.operators.symbolize import Symbolizer
from streams.partition.outbox import Outboxes
from streams.partition.process import Operators, Processor
from streams.settings import StreamsSettings
from streams.symbols.late_names import LateNames
from streams.symbols.symbol_reader import SymbolReader
from streams.symbols.symbol_requester import SymbolRequester
from streams.watchdog import Watchdog

log = logging.getLogger(__name__)

STOP_S = 3.0
"""How long an orderly stop may take. Then the process ends, and unacknowledged messages are processed again."""
_LOOK_S = 0.2
_CHECK_LOGS_S = 20.0
_FETCH_S = 0.1
"""How long the messages of all partitions wait while a file comes from the symbol store, so that its names are there at
once if the store is near. If it is slow, they wait no more than once in a while."""


class Worker:
    """Make it and run it within an event loop."""

    def __init__(self, settings: StreamsSettings, cluster: str) -> None:
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[BaseException | None] = self._loop.create_future()
        self._requester = SymbolRequester()
        folder = Path(settings.symbol_cache).expanduser()
        symcaches = SymCaches(folder, settings.symbol_store, settings.symbol_cache_mb << 20, _FETCH_S)
        self._symbols = SymbolReader(settings, symcaches, self._symbols_received)
        self._late_names = LateNames(symcaches)
        processor = Processor(
            Operators(symbolize=Symbolizer(symcaches, self._requester.want, self._late_names.wait).names),
            RetainedLimits(bytes=settings.attach_memory_mb * 10**6),
            read_retention(settings),
        )
        self._outboxes = Outboxes(settings, [group for group in settings.hold_back_for.split(",") if group])
        limits = TimeLimits.from_settings(settings)
        self._logs = Logs(settings, limits)
        rate = Rate(settings.dead_letters_per_minute)
        self._tasks = PartitionTasks(
            settings, processor, self._outboxes, self._logs, cluster, settings.attach_wait_s, self._end, rate,
            limits,
        )  # fmt: skip
        self._app = create(settings, self._tasks, folder / "faust")
        self._watchdog = Watchdog(settings, settings.watchdog_s, own=self._tasks.own, bark=self._bark)
        listen = settings.metrics_listen
        self._health = HealthServer(listen, self._ready, "streams") if listen else None

    async def run(self) -> BaseException | None:
        """Runs until SIGINT or SIGTERM (returns None), or until a failure (returns the error); then ends within 5 s."""
        for number in (signal.SIGINT, signal.SIGTERM):
            self._loop.add_signal_handler(number, self._end, None)
        works = self._run_app(), self._ask(), self._announce_late_names(), self._check_logs()
        beside = [asyncio.create_task(self._guard(work)) for work in works]
        log.info("reading %s", RAW)
        error = await self._ended
        _exit_after(STOP_S + 1.5, 1 if error else 0)
        for task in beside:
            task.cancel()
        await self._stop()
        return error

    async def _stop(self) -> None:
        self._watchdog.close()
        try:
            # This commits the acknowledged offsets.
            await asyncio.wait_for(self._app.stop(), STOP_S)
        except Exception as error:
            log.warning("the application did not stop cleanly: %r", error)
        await self._tasks.close()
        self._symbols.close()
        self._logs.close()
        self._outboxes.close(1.0)
        if self._health is not None:
            self._health.close()

    async def _guard(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except Exception as error:
            self._end(error)

    async def _run_app(self) -> None:
        await self._app.start()
        while not self._app.crashed and not self._app.should_stop:
            await asyncio.sleep(_LOOK_S)
        self._end(self._app.crash_reason or RuntimeError("Faust stopped without giving a reason"))

    async def _ask(self) -> None:
        """Asks for missing symbols, once it is known which are missing."""
        while True:
            await asyncio.sleep(_LOOK_S)
            known = self._symbols.caught_up.is_set()
            self._outboxes.ask(self._requester.due(time.monotonic(), time.time_ns()) if known else [])

    async def _announce_late_names(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            for build_id, messages in self._late_names.come(time.monotonic()).items():
                await self._outboxes.announce(build_id, messages)

    async def _check_logs(self) -> None:
        while not self._settings.kafka_in_process:  # which makes no topic anew
            await asyncio.sleep(_CHECK_LOGS_S)
            await self._tasks.check_logs()

    def _symbols_received(self, file: SymbolFile) -> None:
        requester, now_s = self._requester, time.monotonic()
        if file.error:
            self._loop.call_soon_threadsafe(requester.failed, file.build_id, file.host_id, now_s)
        elif file.version == STARTS_VERSION:
            self._loop.call_soon_threadsafe(requester.has_no_names, file.build_id, file.host_id, now_s)
        else:
            self._loop.call_soon_threadsafe(requester.answered, file.build_id)

    def _ready(self) -> str | None:
        if not self._tasks.started:
            return self._watchdog.problem or "no partitions were assigned yet"
        return self._watchdog.problem or ("the partitions are being reassigned" if self._app.rebalancing else None)

    def _end(self, error: BaseException | None) -> None:
        if not self._ended.done():
            self._ended.set_result(error)

    def _bark(self, error: BaseException) -> None:
        log.critical("%s", error)
        _exit_after(2 * STOP_S, 1)  # in case the event loop hangs
        self._loop.call_soon_threadsafe(self._end, error)


def _exit_after(seconds: float, code: int) -> None:
    timer = threading.Timer(seconds, os._exit, (code,))
    timer.daemon = True
    timer.start()
