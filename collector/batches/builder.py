"""Makes windows into messages on a thread of its own, the building thread: it reads /proc, and may wait for a disk.

Another thread looks at processes as soon as they are sampled: on a busy host they may have ended when their window is
built.
"""

import logging
import math
import queue
import threading
import time
from contextlib import suppress

from collector import metrics
from collector.activity.activity_socket import ActivityReceiver
from collector.batches.windows import DrainedWindow, Windows
from collector.delivery.window_buffer import WindowBuffer
from collector.guest.priority import run_at_once
from collector.guest.stalls import Working
from collector.processes.listener import ProcessListener
from collector.processes.process_events import Event, Executed

log = logging.getLogger(__name__)

_MAX_ITEMS = 256
_MAX_LOOKED = 4096
_LOOK_AGAIN_S = 0.05  # from one program to the next one that is looked at, in one process
_LOOK_SHARE, _LOOK_BURST_S = 0.02, 0.5
"""Looking at processes before their window is built may take this share of one CPU; after a pause, these CPU
seconds."""
_MAX_BYTES = 64 << 20
"""The size of the windows that wait; a window that begins below it is taken."""


class BuildQueue(ProcessListener):
    """What there is to do: windows to build, and processes to look at while they live."""

    def __init__(self) -> None:
        self._windows: queue.Queue[DrainedWindow | None] = queue.Queue(_MAX_ITEMS)
        self._pids: queue.Queue[int | None] = queue.Queue(_MAX_ITEMS)
        self._put_bytes = self._taken_bytes = 0  # each is written by one thread
        self._looked: dict[int, float] = {}  # when each process was put in last, by time.monotonic
        self._looked_lock = threading.Lock()

    def sampled(self, pid: int) -> None:
        with self._looked_lock:
            self._looked.pop(pid, None)
            self._looked[pid] = time.monotonic()
            if len(self._looked) > _MAX_LOOKED:
                del self._looked[next(iter(self._looked))]
        with suppress(queue.Full):
            self._pids.put_nowait(pid)

    def event(self, pid: int, event: Event) -> None:
        """If the process was sampled before, each of its programs is looked at while it runs."""
        if isinstance(event, Executed) and time.monotonic() - self._looked.get(pid, math.inf) > _LOOK_AGAIN_S:
            self.sampled(pid)

    def put(self, window: DrainedWindow) -> None:
        """Waits until there is room."""
        self._put_bytes += window.samples.nbytes
        self._windows.put(window)

    def room(self) -> int:
        """How many windows can be put in without waiting."""
        return _MAX_ITEMS - len(self) if self._put_bytes - self._taken_bytes < _MAX_BYTES else 0

    def end(self) -> None:
        """Nothing follows."""
        self._windows.put(None)
        with suppress(queue.Full):  # then its thread, a daemon, ends with the process
            self._pids.put_nowait(None)

    def get(self) -> DrainedWindow | None:
        """Waits for a window; None at the end."""
        window = self._windows.get()
        if window is not None:
            self._taken_bytes += window.samples.nbytes
        return window

    def get_process(self) -> int | None:
        """Waits for a process ID; None at the end."""
        return self._pids.get()

    def __len__(self) -> int:
        """How many windows wait."""
        return self._windows.qsize()


class BatchBuilder:
    """Gives the messages of each window in the queue to `buffer`, from `start` until the queue's end."""

    def __init__(self, work: BuildQueue, windows: Windows, activity: ActivityReceiver, buffer: WindowBuffer) -> None:
        self._work, self._windows, self._activity, self._buffer = work, windows, activity, buffer
        self.sampling_s = 0.0  # CPU time of the thread that depends on how many samples there are
        self._unreported = 0  # samples of the window in work and of windows that were given up, until `buffer` has it
        self._thread = threading.Thread(target=self._run, name="build", daemon=True)
        self._looking = threading.Thread(target=self._look, name="look", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._looking.start()

    def shed(self, level: int) -> None:
        """Puts off the details of new processes from level 1 on."""
        self._windows.defer = level > 0

    def join(self) -> None:
        """Returns when the last window was handed over."""
        self._thread.join()

    def _run(self) -> None:
        while (window := self._work.get()) is not None:
            try:
                with Working("build"):
                    self._build(window)
            except Exception:
                metrics.FAILED.inc()
                log.exception("a window could not be made into a batch")
            self.sampling_s = time.thread_time() - self._windows.details_s

    def _look(self) -> None:
        """Where so many processes start that this takes more than its share, what events say of some must do."""
        run_at_once()
        saved_s, earned_at = _LOOK_BURST_S, time.monotonic()
        while (pid := self._work.get_process()) is not None:
            before, earned_at = earned_at, time.monotonic()
            saved_s = min(_LOOK_BURST_S, saved_s + (earned_at - before) * _LOOK_SHARE)
            if saved_s <= 0:
                continue
            began_s = time.thread_time()
            try:
                with Working("look"):
                    self._windows.look(pid)
            except Exception:
                log.exception("process %d could not be looked at", pid)
            saved_s -= time.thread_time() - began_s

    def _build(self, window: DrainedWindow) -> None:
        dropped = self._unreported + self._buffer.take_dropped_samples()
        self._unreported = dropped + len(window.samples.pid) + window.samples.lost  # until it is handed over
        messages = self._windows.messages(window, self._activity.drain(), self._activity.services(), dropped)
        if messages:
            self._buffer.append(messages)
        self._unreported = 0
