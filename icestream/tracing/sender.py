"""The thread that sends activity to the collector on this host, every 200 ms and without blocking the application."""

import logging
import os
import socket
import threading
import time
from collections import deque
from typing import NamedTuple

from icestream.tracing.datagram import MOST_NAME_BYTES, Datagram, IntervalColumns, datagrams
from icestream.tracing.threads import WIDTH, SpanEnd, Thread, registry

PERIOD_SECONDS = 0.2
HELLO_SECONDS = 5.0
"""Sends a datagram at least this often, so that a collector that started later knows the service."""

MOST_WAITING_BYTES = 1 << 20
MOST_WAITING_SECONDS = 10.0
"""Limits of the datagrams that wait for an absent collector. The oldest are dropped first."""

_LOG = logging.getLogger("icestream.tracing")
_TRIES = 20
_RETRY_SECONDS = 0.002


class Sender:
    """Sends until `close`. Its thread starts with the first thread that is in a context, or with `run`."""

    def __init__(self, path: str, service: str) -> None:
        self.path = path
        self.service = service
        self.sent = 0  # intervals
        self.dropped = 0  # intervals
        self.dropped_spans = 0
        self._unreported = 0
        self._waiting: deque[tuple[float, Datagram]] = deque()
        self._waiting_bytes = 0
        self._last = 0.0
        self._warned = False
        self._begin()

    def _begin(self) -> None:
        self._bell = threading.Lock()  # released to wake the thread: a store that can be done anywhere
        self._bell.acquire()
        self._closing = False
        self._start_lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._socket: socket.socket | None = None

    def run(self) -> None:
        """Starts the thread if it does not run."""
        with self._start_lock:
            if self._thread is None:
                thread = threading.Thread(target=self._loop, name="icestream-tracing", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the process can have no more threads now
                    return
                self._thread = thread

    def wake(self) -> None:
        """Makes the thread send now."""
        try:
            self._bell.release()
        except RuntimeError:  # it is awake
            return

    def forked(self) -> None:
        """Resets the state in the child of a fork, which has nothing to send and no sending thread."""
        if self._socket is not None:
            self._socket.close()
        self._waiting.clear()
        self._waiting_bytes = self._unreported = self.sent = self.dropped = self.dropped_spans = 0
        self._begin()

    def close(self) -> None:
        """Sends the remaining activity, and ends the thread."""
        self._closing = True
        self.wake()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(2.0)

    def _loop(self) -> None:
        while not self._closing:
            self._bell.acquire(timeout=PERIOD_SECONDS)
            self._flush_whatever_comes()
        self._flush_whatever_comes()  # what came while it was asked to close
        if any(datagram.intervals or datagram.spans for _, datagram in self._waiting):
            self._warn()
        if self._socket is not None:
            self._socket.close()

    def _flush_whatever_comes(self) -> None:
        try:
            self._flush()
        except Exception:  # an application must not be without activity from here on
            _LOG.exception("activity was lost")

    def _flush(self) -> None:
        columns, spans, dropped, dropped_spans = _collect()
        self._unreported += dropped
        self.dropped += dropped
        self.dropped_spans += dropped_spans
        now = time.monotonic()
        if columns.tid or spans or self._unreported or now - self._last > HELLO_SECONDS:
            self._last = now
            service = self.service.encode("utf-8", "replace")[:MOST_NAME_BYTES]
            try:
                made = list(datagrams(service, os.getpid(), columns, spans, self._unreported))
            except Exception:
                self.dropped += len(columns.tid)
                self.dropped_spans += len(spans)
                self._unreported += len(columns.tid)
                raise
            self._unreported = 0
            for datagram in made:
                self._waiting.append((now, datagram))
                self._waiting_bytes += len(datagram.content)
        while self._waiting and self._send(self._waiting[0][1].content):
            self.sent += self._forget().intervals
        while self._waiting and (
            self._waiting_bytes > MOST_WAITING_BYTES or now - self._waiting[0][0] > MOST_WAITING_SECONDS
        ):
            self._give_up(self._forget())

    def _forget(self) -> Datagram:
        datagram = self._waiting.popleft()[1]
        self._waiting_bytes -= len(datagram.content)
        return datagram

    def _give_up(self, datagram: Datagram) -> None:
        if datagram.intervals or datagram.spans:
            self._warn()  # first: a reader of the status that activity is lost finds the reason in the log
        self.dropped += datagram.intervals
        self.dropped_spans += datagram.spans
        self._unreported += datagram.intervals + datagram.dropped

    def _warn(self) -> None:
        """Says once that activity is lost, and why."""
        if not self._warned:
            self._warned = True
            _LOG.warning("activity is lost: %s", why_unheard(self.path) or "the collector does not keep up")

    def _send(self, content: bytes) -> bool:
        """Returns whether the datagram was sent. Retries for a moment if the collector is busy."""
        for _ in range(_TRIES):
            try:
                if self._socket is None:
                    self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
                self._socket.sendto(content, self.path)
                return True
            except BlockingIOError:
                time.sleep(_RETRY_SECONDS)
            except OSError:  # no collector, or none that we may talk to
                return False
        return False


def why_unheard(path: str) -> str:
    """Returns "" if a collector listens on this socket, else why nobody hears us."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as probe:
            probe.connect(path)
    except (FileNotFoundError, ConnectionRefusedError):
        return f"no collector listens on {path}; ICESTREAM_ACTIVITY_SOCKET can name another socket"
    except OSError as error:
        return f"this process cannot send to {path}: {error.strerror or error}"
    return ""


class _Collected(NamedTuple):
    """Everything that threads have to send, and how much they dropped."""

    columns: IntervalColumns
    spans: list[SpanEnd]
    dropped: int  # intervals
    dropped_spans: int


def _collect() -> _Collected:
    columns = IntervalColumns([], [], [], [], [], [])
    spans: list[SpanEnd] = []
    dropped = dropped_spans = 0
    gone: set[Thread] = set()
    with registry.lock:
        threads = list(registry.threads)
    for thread in threads:
        if thread.idle:
            continue
        ended = thread.ended  # before its rows are taken: nothing can come after
        rows = thread.drain()
        columns.context.extend(rows[0::WIDTH])  # type: ignore[arg-type] # flat rows mix types
        columns.start.extend(rows[1::WIDTH])  # type: ignore[arg-type]
        columns.start_cpu.extend(rows[2::WIDTH])  # type: ignore[arg-type]
        columns.end.extend(rows[3::WIDTH])  # type: ignore[arg-type]
        columns.end_cpu.extend(rows[4::WIDTH])  # type: ignore[arg-type]
        columns.tid.extend([thread.tid] * (len(rows) // WIDTH))
        spans += thread.take_spans()
        lost, lost_spans = thread.dropped, thread.dropped_spans
        dropped += lost - thread.reported
        dropped_spans += lost_spans - thread.reported_spans
        thread.reported, thread.reported_spans = lost, lost_spans
        if ended:
            gone.add(thread)
    if gone:
        with registry.lock:
            registry.threads = [thread for thread in registry.threads if thread not in gone]
    registry.share_limits()
    return _Collected(columns, spans, dropped, dropped_spans)
