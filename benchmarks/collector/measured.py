"""Runs a collector beside other profilers, and reads what each takes."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from icestream.http.metrics import parse_metrics
from icestream.kafka import clients
from icestream.settings import KafkaSettings
from icestream.topics import RAW, STREAMS_GROUP
from standalone.supervisor.in_process_broker import InProcessBroker

_PART = "icestream_collector_"


@dataclass(frozen=True)
class Collector:
    """A collector that runs."""

    pid: int
    port: int  # of its metrics

    def metrics(self) -> dict[tuple[str, ...], float]:
        """(name without its part and unit, label values...) -> value."""
        text = urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=60).read().decode()
        return {
            (sample.name.removeprefix(_PART), *sample.labels.values()): sample.value
            for samples in parse_metrics(text).values()
            for sample in samples
        }

    def wake_ups(self) -> int:
        """Counts the voluntary switches of all threads so far, from /proc/PID/task/TID/status."""
        return sum(
            int(line.split()[1])
            for status in Path(f"/proc/{self.pid}/task").glob("*/status")
            for line in status.read_text().splitlines()
            if line.startswith("voluntary_ctxt_switches")
        )

    def resident_mb(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)


def figures(collector: Collector, seconds: float) -> dict[str, object]:
    """What it takes in that time; CPU is in per cent of one CPU."""
    began, before, wake_ups = time.monotonic(), collector.metrics(), collector.wake_ups()
    time.sleep(seconds)
    took, after = time.monotonic() - began, collector.metrics()

    def percent(*key: str) -> float:
        return round(100 * (after[key] - before.get(key, 0.0)) / took, 3)

    threads = {key[1]: percent(*key) for key in after if key[0] == "thread_cpu_seconds_total"}
    return {
        "process_percent": percent("cpu_seconds_total"),
        "bpf_percent": percent("bpf_seconds_total"),
        "thread_percent": dict(sorted(threads.items(), key=lambda item: -item[1])),
        "wake_ups_per_s": round((collector.wake_ups() - wake_ups) / took, 1),
        "threads": len(os.listdir(f"/proc/{collector.pid}/task")),
        "resident_mb": collector.resident_mb(),
        "frequency_hz": after["frequency_hertz",],
        "shed_level": after["shed_level",],
        "samples_per_s": round((after["samples_total",] - before["samples_total",]) / took, 1),
        "lost_samples": after["lost_samples_total",] - before["lost_samples_total",],
    }


@contextmanager
def collecting(frequency_hz: int, cpu_budget: float, interval_s: float = 5.0) -> Iterator[Collector]:
    """Runs a collector that publishes to an in-process broker, whose messages are read all the time."""
    with ExitStack() as stack:
        broker = InProcessBroker()
        stack.callback(broker.close)
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(_emptied(broker.settings()))
        port = _free_port()
        environ = os.environ | broker.settings().environ() | {
            "ICESTREAM_SPOOL": f"{folder}/spool",
            "ICESTREAM_UNWIND_CACHE": f"{folder}/unwind",
            "ICESTREAM_ACTIVITY_SOCKET": f"{folder}/activity.sock",
            "ICESTREAM_ACTIVITY_READERS": STREAMS_GROUP,
            "ICESTREAM_METRICS_LISTEN": f"127.0.0.1:{port}",
            "ICESTREAM_CPU_BUDGET": str(cpu_budget),
            "ICESTREAM_INTERVAL": str(interval_s),
        }  # fmt: skip
        command = [sys.executable, "-m", "icestream.cli", "collect", "--frequency", str(frequency_hz)]
        with subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL) as collector:
            try:
                yield Collector(collector.pid, port)
            finally:
                collector.terminate()


class Beside:
    """Another profiler that runs in the same time. It counts with its children that ended."""

    def __init__(self, command: str) -> None:
        self._process = subprocess.Popen(
            shlex.split(command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        self._began = time.monotonic()

    def percent(self) -> float:
        """Ends it; returns its CPU in per cent of one CPU, its start included."""
        took = time.monotonic() - self._began
        self._process.send_signal(signal.SIGINT)
        _, _, usage = os.wait4(self._process.pid, 0)
        self._process.returncode = 0
        return round(100 * (usage.ru_utime + usage.ru_stime) / took, 3)


@contextmanager
def _emptied(settings: KafkaSettings) -> Iterator[None]:
    """Reads along as the stream processors do, so that the broker has room."""
    stop = threading.Event()

    def read() -> None:
        reader = clients.consumer(settings, STREAMS_GROUP)
        reader.subscribe([RAW])
        while not stop.is_set():
            if (message := reader.poll(0.5)) is not None and message.error() is None:
                reader.commit(message, asynchronous=True)
        reader.close()

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
