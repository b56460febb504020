"""Answers requests for symbols that are meant for this host: a thread that reads icestream.symbol-requests.

Where debuginfod servers are set, they are asked for what this host has no debug information of; names that the file
itself has are sent at once, and better ones when they come.

It belongs to no group and commits nothing: a request that is missed is asked again, of the next host. It begins a few
messages before the end, so that what was asked while the collector started again is answered.
"""

import logging
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, TopicPartition
from google.protobuf.message import DecodeError

from collector import metrics
from collector.delivery.message_log import Message
from collector.delivery.publisher import Publisher
from collector.settings import CollectorSettings, host_id
from collector.symbols.builder import SymbolBuilder
from collector.symbols.name_kinds import DEBUG_INFO
from collector.symbols.symbol_files import SymbolFiles
from icestream.kafka import consumer
from icestream.settings import SettingError
from icestream.topics import SYMBOL_REQUESTS, SYMBOLS
from icestream.v1.symbols_pb2 import SymbolFile, SymbolRequest

if TYPE_CHECKING:
    from collector.symbols.downloads import Downloads

log = logging.getLogger(__name__)

_LOOK_BACK = 100  # messages of each partition
_TOO_OLD_NS = 60 * 10**9
_PARTITIONS_S = 60.0  # how often to look for new partitions
_CHUNK_PAUSE_S = 0.05
_REST_S = 10.0
_SAME_AGAIN_S = 5.0  # a request repeated within this time was answered already
_REMEMBERED = 10_000


class SymbolRequests:
    """Serves from `start` until `close`. Raises SettingError."""

    def __init__(self, settings: CollectorSettings, publisher: Publisher, files: SymbolFiles) -> None:
        self._host_id = host_id(settings)
        self._publisher = publisher
        self._files = files
        self._builder = SymbolBuilder(self._host_id, settings.symbol_store, files)
        self._downloads = _downloads(settings)
        self._answered: OrderedDict[str, float] = OrderedDict()
        self._stop = threading.Event()
        self._consumer = consumer(
            settings,
            f"icestream.collector.{self._host_id}",
            **{"fetch.wait.max.ms": 5000, "log_level": 0, "queued.max.messages.kbytes": 1024},
        )
        self._thread = threading.Thread(target=self._run, name="symbols", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(timeout=2.0)
        if self._thread.is_alive():  # it waits for a large file
            self._builder.rest()
            self._thread.join(timeout=2.0)

    def _run(self) -> None:
        positions: dict[int, int] = {}
        look, last = 0.0, time.monotonic()
        while not self._stop.is_set():
            try:
                if time.monotonic() >= look:
                    look = time.monotonic() + (_PARTITIONS_S if _follow(self._consumer, positions) else 1.0)
                self._serve_downloaded()
                message = self._consumer.poll(0.5) if positions else None
                if message is None:
                    if not positions:
                        self._stop.wait(0.5)
                    if time.monotonic() - last > _REST_S:
                        self._builder.rest()
                elif message.error() is None:
                    self._serve(message.value() or b"")
                    last = time.monotonic()
            except KafkaException as error:
                log.debug("symbol requests cannot be read: %s", error)
                self._stop.wait(1.0)
            except Exception:
                log.exception("a symbol request failed")
        self._builder.rest()
        self._consumer.close()

    def _serve(self, value: bytes) -> None:
        try:
            request = SymbolRequest.FromString(value)
        except DecodeError:
            metrics.SYMBOL_REQUESTS.labels("undecodable").inc()
            return
        if request.host_id != self._host_id or time.time_ns() - request.requested_unix_nano > _TOO_OLD_NS:
            return
        now = time.monotonic()
        if now - self._answered.get(request.build_id, float("-inf")) < _SAME_AGAIN_S:
            return
        self._answer(request.build_id, request.file)
        self._answered[request.build_id] = time.monotonic()
        while len(self._answered) > _REMEMBERED:
            self._answered.popitem(last=False)

    def _serve_downloaded(self) -> None:
        while self._downloads is not None and (done := self._downloads.finished()) is not None:
            self._answer(done.build_id, done.path, f"debuginfod: {done.error}" if done.error else "")

    def _answer(self, build_id: str, path: str, downloaded: str | None = None) -> None:
        """`downloaded`: None before debuginfod was asked, then what it failed with, or ""."""
        more = []
        if self._downloads is not None and (found := self._downloads.servers.path(build_id)) is not None:
            more.append(str(found))
        for at, answer in enumerate(self._builder.answer(build_id, path, more)):
            if at == 0 and answer.version < DEBUG_INFO:
                if downloaded is None and self._download(build_id, path) and answer.error:
                    return  # the answer is what comes of it
                if downloaded and answer.error:
                    answer.error += f"; {downloaded}"
                elif downloaded:
                    return  # it was sent before
            if at:
                self._stop.wait(_CHUNK_PAUSE_S)  # a large file must not hold up the samples
            self._publisher.send(Message(SYMBOLS, build_id.encode(), answer.SerializeToString()))
            self._note(answer)

    def _download(self, build_id: str, path: str) -> bool:
        """Asks debuginfod for a file that was seen here; whether an answer will come."""
        if self._downloads is None or not path.startswith("/") or not self._files.places(build_id):
            return False
        return self._downloads.ask(build_id, path)

    def _note(self, answer: SymbolFile) -> None:
        if answer.chunk == 0:
            metrics.SYMBOL_REQUESTS.labels("error" if answer.error else "symbols").inc()
        if answer.error:
            log.info("no symbols for %s: %s", answer.build_id, answer.error)


def _follow(reader: Consumer, positions: dict[int, int]) -> bool:
    """Reads all partitions, new ones from their start; False where the topic is not there yet."""
    topic = reader.list_topics(SYMBOL_REQUESTS, timeout=5.0).topics.get(SYMBOL_REQUESTS)
    if topic is None or topic.error is not None or not topic.partitions:
        return False
    found = {}
    for partition in sorted(set(topic.partitions) - set(positions)):
        low, high = reader.get_watermark_offsets(TopicPartition(SYMBOL_REQUESTS, partition), timeout=5.0)
        found[partition] = max(low, high - _LOOK_BACK)
    if found:
        reader.incremental_assign([TopicPartition(SYMBOL_REQUESTS, *place) for place in found.items()])
        positions |= found  # only now: what fails on the way is tried again as a whole
    return True


def _downloads(settings: CollectorSettings) -> "Downloads | None":
    if not settings.debuginfod_urls:
        return None
    # An HTTP client takes memory that few collectors need.
    from collector.symbols.debuginfod import Debuginfod, servers
    from collector.symbols.downloads import Downloads

    try:
        urls = servers(settings.debuginfod_urls)
    except ValueError as error:
        raise SettingError(str(error)) from None
    limit = settings.debuginfod_cache_limit_mb << 20
    return Downloads(Debuginfod(urls, settings.debuginfod_cache, limit)) if urls else None
