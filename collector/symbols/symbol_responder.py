"""A thread that reads icestream.symbol-requests and answers the requests for this host.

If debuginfod servers are set, the thread asks them for the debug information that this host lacks. It sends the names
in the file itself at once, and better ones when the download is done.

Large files, and those of unknown size, are answered by a thread and a child process of their own, which end with them:
the names of small programs do not wait until a library of gigabytes is read.

The consumer belongs to no group and commits nothing: when a request is missed, the streams ask the next host. It starts
a few messages before the end of the topic, to answer the requests that came while the collector restarted.
"""

import logging
import threading
import time
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, TopicPartition
from google.protobuf.message import DecodeError

from collector import metrics
from collector.delivery.message_log import Message
from collector.delivery.publisher import SpoolPublisher
from collector.processes.mapped_files import VDSO
from collector.settings import CollectorSettings, host_id
from collector.symbols.builder import LARGE_TIMEOUT_S, TIMEOUT_S, SymbolBuilder
from collector.symbols.name_kinds import DEBUG_INFO
from collector.symbols.request_queue import QueuedRequest, RequestQueue
from collector.symbols.symbol_files import SymbolFiles
from icestream.kafka.clients import consumer
from icestream.process.byte_cache import ByteCache
from icestream.settings import SettingError
from icestream.topics import COLLECTOR_GROUP, SYMBOL_REQUESTS, SYMBOLS
from icestream.v1.symbols_pb2 import SymbolFile, SymbolRequest

if TYPE_CHECKING:
    from collector.symbols.downloads import Downloads

log = logging.getLogger(__name__)

_LOOK_BACK = 100  # messages in each partition
_TOO_OLD_NS = 600 * 10**9  # longer than one answer may take (builder.LARGE_TIMEOUT_S)
_PARTITIONS_S = 20.0  # between two looks for new partitions
_CHUNK_PAUSE_S = 0.05
_LOOK_S = 0.5  # between two looks for requests
_SELDOM_S = 2.0  # the same when none came for _REST_S
_REST_S = 10.0  # without a request; then the child process ends
_REPEAT_S = 5.0  # a request repeated within this time is already answered
_ANSWERED_BYTES = 2 << 20  # about 10,000 build IDs; a request may hold any text


class SymbolResponder:
    """Answers requests from `start` to `close`. The constructor raises SettingError."""

    def __init__(self, settings: CollectorSettings, publisher: SpoolPublisher, files: SymbolFiles) -> None:
        self._host_id = host_id(settings)
        self._publisher = publisher
        self._files = files
        self._builder, self._large_builder = (
            SymbolBuilder(self._host_id, settings.symbol_store, files, seconds)
            for seconds in (TIMEOUT_S, LARGE_TIMEOUT_S)
        )
        self._downloads = _downloads(settings)
        self._queue = RequestQueue(files)
        self._answered: ByteCache[str, float] = ByteCache(_ANSWERED_BYTES, lambda build_id, _: 4 * len(build_id))
        self._stop = threading.Event()
        self._consumer = consumer(
            settings,
            f"{COLLECTOR_GROUP}.{self._host_id}",
            **{"fetch.wait.max.ms": 5000, "log_level": 0, "queued.max.messages.kbytes": 1024},
        )
        self._thread = threading.Thread(target=self._run, name="symbols", daemon=True)
        self._large_thread: threading.Thread | None = None  # while large files wait

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(timeout=2.0)
        for thread, builder in ((self._thread, self._builder), (self._large_thread, self._large_builder)):
            if thread is not None and thread.is_alive():  # it is waiting for the symbols of a file
                builder.interrupt()
                thread.join(timeout=2.0)

    def _run(self) -> None:
        positions: dict[int, int] = {}
        next_check, last_request = 0.0, time.monotonic()
        while not self._stop.is_set():
            try:
                if time.monotonic() >= next_check:
                    next_check = time.monotonic() + (_PARTITIONS_S if _follow(self._consumer, positions) else 1.0)
                self._queue_downloaded()
                if positions:
                    self._read()
                self._start_large()
                if self._answer_next(self._builder, large=False):
                    last_request = time.monotonic()
                    continue
                resting = time.monotonic() - last_request > _REST_S
                if resting:
                    self._builder.end_children()
                self._stop.wait(_SELDOM_S if resting else _LOOK_S)  # consume itself would wake up five times a second
            except KafkaException as error:
                log.debug("symbol requests cannot be read: %s", error)
                self._stop.wait(1.0)
            except Exception:
                log.exception("a symbol request failed")
        self._builder.end_children()
        self._consumer.close()

    def _read(self) -> None:
        """Reads the requests that came, until no more are there: they are those of the whole fleet."""
        while not self._stop.is_set():
            messages = self._consumer.consume(_LOOK_BACK, 0)
            for message in messages:
                if message.error() is None:
                    self._note(message.value() or b"")
            if len(messages) < _LOOK_BACK:
                return

    def _note(self, value: bytes) -> None:
        """Queues a request if it is for this host and was not answered just now."""
        try:
            request = SymbolRequest.FromString(value)
        except DecodeError:
            metrics.SYMBOL_REQUESTS.labels("undecodable").inc()
            return
        if request.host_id != self._host_id or time.time_ns() - request.requested_unix_nano > _TOO_OLD_NS:
            return
        answered = self._answered.get(request.build_id)
        if answered is None or time.monotonic() - answered > _REPEAT_S:
            self._queue.put(request.build_id, request.file)

    def _queue_downloaded(self) -> None:
        while self._downloads is not None and (done := self._downloads.finished()) is not None:
            self._queue.put(done.build_id, done.path, f"debuginfod: {done.error}" if done.error else "")

    def _start_large(self) -> None:
        """Starts the thread for large files if one waits."""
        if (self._large_thread is None or not self._large_thread.is_alive()) and self._queue.has_large():
            self._large_thread = threading.Thread(target=self._run_large, name="symbols-large", daemon=True)
            self._large_thread.start()

    def _run_large(self) -> None:
        waiting = True
        while waiting and not self._stop.is_set():
            try:
                waiting = self._answer_next(self._large_builder, large=True)
            except Exception:
                log.exception("a request for the symbols of a large file failed")
        self._large_builder.end_children()

    def _answer_next(self, builder: SymbolBuilder, large: bool) -> bool:
        """Answers the next request, of the large files or of the others; returns False if none of them waits."""
        request = self._queue.pop(large)
        if request is None:
            return False
        self._answer(builder, request)
        self._answered.put(request.build_id, time.monotonic())
        self._queue.drop_repeat(request.build_id)
        return True

    def _answer(self, builder: SymbolBuilder, request: QueuedRequest) -> None:
        """Publishes the symbols of a build ID."""
        build_id, path, download_error = request.build_id, request.path, request.download_error
        paths = []
        if self._downloads is not None and (debug_file := self._downloads.servers.path(build_id)) is not None:
            paths.append(str(debug_file))
        own = path if path == VDSO else ""  # no file is opened because a message names its path
        for number, answer in enumerate(builder.answer(build_id, own, paths)):
            if answer.error and self._stop.is_set():
                return  # it was interrupted, so the error says nothing about the file
            if number == 0 and answer.version < DEBUG_INFO:
                if download_error is None and self._download(build_id, path) and answer.error:
                    return  # the download's result is the answer
                if download_error and answer.error:
                    answer.error += f"; {download_error}"
                elif download_error:
                    return  # these names were sent before the download
            if number:
                self._stop.wait(_CHUNK_PAUSE_S)  # a large file must not delay the samples
            self._publisher.send(Message(SYMBOLS, build_id.encode(), answer.SerializeToString()))
            self._count(answer)

    def _download(self, build_id: str, path: str) -> bool:
        """Starts the download of a file that was seen on this host; returns False if nothing will be downloaded."""
        if self._downloads is None or not path.startswith("/") or not self._files.entries(build_id):
            return False
        return self._downloads.ask(build_id, path)

    def _count(self, answer: SymbolFile) -> None:
        if answer.chunk == 0:
            metrics.SYMBOL_REQUESTS.labels("error" if answer.error else "symbols").inc()
        if answer.error:
            log.info("no symbols for %s: %s", answer.build_id, answer.error)


def _follow(reader: Consumer, positions: dict[int, int]) -> bool:
    """Assigns the partitions that `positions` lacks, and adds them to it. Returns False if the topic does not exist."""
    topic = reader.list_topics(SYMBOL_REQUESTS, timeout=5.0).topics.get(SYMBOL_REQUESTS)
    if topic is None or topic.error is not None or not topic.partitions:
        return False
    starts = {}
    for partition in sorted(set(topic.partitions) - set(positions)):
        low, high = reader.get_watermark_offsets(TopicPartition(SYMBOL_REQUESTS, partition), timeout=5.0)
        starts[partition] = max(low, high - _LOOK_BACK)
    if starts:
        reader.incremental_assign([TopicPartition(SYMBOL_REQUESTS, *start) for start in starts.items()])
        positions |= starts  # last, so that the next call repeats everything if a step fails
    return True


def _downloads(settings: CollectorSettings) -> "Downloads | None":
    if not settings.debuginfod_urls:
        return None
    # Imported here, because few collectors need the memory that an HTTP client takes.
    from collector.symbols.debuginfod import Debuginfod, servers
    from collector.symbols.downloads import Downloads

    try:
        urls = servers(settings.debuginfod_urls)
    except ValueError as error:
        raise SettingError(str(error)) from None
    limit = settings.debuginfod_cache_limit_mb << 20
    return Downloads(Debuginfod(urls, settings.debuginfod_cache, limit)) if urls else None
