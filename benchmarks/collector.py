"""What the collector costs, every CPU busy: its own CPU time and the eBPF program's, and its memory.

    python -m benchmarks.collector [--seconds 60]

Profiles at 19, 99 and 999 Hz into an in-process broker that is emptied along. A process a CPU spins, and a few start
and end every second. Prints one JSON object: per cent of one CPU by the process and its children (`process`) and by the
program in the kernel (`bpf`), from after the first batches to the end; and megabytes resident. Needs root and bpftool.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from icestream import kafka
from icestream.settings import KafkaSettings
from icestream.topics import RAW, STREAMS_GROUP
from standalone.broker import InProcessBroker

BPF_STATS = Path("/proc/sys/kernel/bpf_stats_enabled")
WARM_UP_S = 15.0
SPIN = "while True: sum(i * i for i in range(1000))"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="to measure, at each frequency")
    seconds = parser.parse_args(argv).seconds
    before = BPF_STATS.read_text()
    BPF_STATS.write_text("1")
    try:
        with _load():
            print(json.dumps({f"{hz}_hz": measure(hz, seconds) for hz in (19, 99, 999)}))
    finally:
        BPF_STATS.write_text(before)
    return 0


def measure(frequency_hz: int, seconds: float) -> dict[str, float]:
    """Figures of one run."""
    broker = InProcessBroker()
    with tempfile.TemporaryDirectory() as folder, _emptied(broker.settings()):
        environ = os.environ | broker.settings().environ() | {
            "ICESTREAM_SPOOL": f"{folder}/spool",
            "ICESTREAM_ACTIVITY_SOCKET": f"{folder}/activity.sock",
            "ICESTREAM_ACTIVITY_READERS": STREAMS_GROUP,
            "ICESTREAM_METRICS_LISTEN": "",
        }  # fmt: skip
        command = [sys.executable, "-m", "icestream.cli", "collect", "--frequency", str(frequency_hz)]
        with subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL) as collector:
            time.sleep(WARM_UP_S)
            began, cpu, bpf = time.monotonic(), _cpu_s(collector.pid), _bpf_s()
            time.sleep(seconds)
            took = time.monotonic() - began
            figures = {
                "process_percent": round(100 * (_cpu_s(collector.pid) - cpu) / took, 3),
                "bpf_percent": round(100 * (_bpf_s() - bpf) / took, 3),
                "resident_mb": round(_resident_bytes(collector.pid) / 1e6, 1),
            }
            collector.terminate()
    broker.close()
    return figures


@contextmanager
def _load() -> Iterator[None]:
    """A process a CPU that spins, and short-lived ones."""
    spinning = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(os.cpu_count() or 1)]
    short = subprocess.Popen(["sh", "-c", "while :; do ls -lR /usr/include >/dev/null; sleep 0.3; done"])
    try:
        yield
    finally:
        for process in [*spinning, short]:
            process.kill()


@contextmanager
def _emptied(settings: KafkaSettings) -> Iterator[None]:
    """Reads along as the stream processors do, so that the broker has room."""
    stop = threading.Event()

    def read() -> None:
        reader = kafka.consumer(settings, STREAMS_GROUP)
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


def _cpu_s(pid: int) -> float:
    """User and system time of a process and of its children that ended (proc(5), /proc/PID/stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _bpf_s() -> float:
    """Run time of the perf_event programs, by the kernel's own statistics (kernel.bpf_stats_enabled)."""
    shown = subprocess.run(["bpftool", "--json", "prog", "show"], capture_output=True, check=True).stdout
    return sum(p.get("run_time_ns", 0) for p in json.loads(shown) if p["type"] == "perf_event") / 1e9


if __name__ == "__main__":
    sys.exit(main())
