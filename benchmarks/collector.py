"""What the collector costs while 50 processes keep every CPU busy: its CPU, the eBPF programs' CPU, and its memory.

    python -m benchmarks.collector [--seconds 60]

Profiles at 19, 99 and 999 Hz into an in-process broker whose messages are read all the time. Half of the processes run
Python, half compute checksums in C; a few more start and end every second. Prints one JSON object: per cent of one CPU
that the process and its children take (`process`) and the programs in the kernel (`bpf`), measured after the first
batches; megabytes resident; and for `perf record -g` on the same load, per cent of one CPU and kilobytes written a
second. `hour`: megabytes resident after 60 and after 720 batches, which are an hour's worth at short intervals. Needs
root and bpftool.
"""

import argparse
import json
import os
import resource
import shutil
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
from standalone.supervisor.in_process_broker import InProcessBroker

BPF_STATS = Path("/proc/sys/kernel/bpf_stats_enabled")
WARM_UP_S = 60.0  # on a host this busy the start alone takes half of it
PROCESSES = 50
SPIN = """
def inner(n): return sum(i * i for i in range(n))
def outer(): return sorted((inner(n % 100) for n in range(50)), key=lambda x: -x)
while True: outer()
"""
HOUR_BATCHES, FIRST_BATCHES, HOUR_INTERVAL_S = 720, 60, 0.1


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="seconds to measure at each frequency (default: 60)"
    )
    seconds = parser.parse_args(argv).seconds
    before = BPF_STATS.read_text()
    BPF_STATS.write_text("1")
    try:
        with _load():
            figures = {f"{hz}_hz": measure(hz, seconds) | perf(hz, seconds) for hz in (19, 99, 999)}
            print(json.dumps(figures | {"hour": hour()}))
    finally:
        BPF_STATS.write_text(before)
    return 0


def measure(frequency_hz: int, seconds: float) -> dict[str, float]:
    """Figures of one run."""
    with _collector(frequency_hz) as collector:
        time.sleep(WARM_UP_S)
        began, cpu, bpf = time.monotonic(), _cpu_s(collector.pid), _bpf_s()
        time.sleep(seconds)
        took = time.monotonic() - began
        return {
            "process_percent": round(100 * (_cpu_s(collector.pid) - cpu) / took, 3),
            "bpf_percent": round(100 * (_bpf_s() - bpf) / took, 3),
            "resident_mb": round(_resident_bytes(collector.pid) / 1e6, 1),
        }


def perf(frequency_hz: int, seconds: float) -> dict[str, float]:
    """`perf record -g` for the same time; nothing where there is no perf."""
    if not shutil.which("perf"):
        return {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "perf.data"
        command = ["perf", "record", "-F", str(frequency_hz), "-g", "-a", "-e", "cpu-clock", "-o", path]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*command, "--", "sleep", str(seconds)], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        kilobytes = path.stat().st_size / 1e3 / seconds
    return {"perf_percent": round(100 * cpu / seconds, 3), "perf_kb_per_s": round(kilobytes, 1)}


def hour() -> dict[str, float]:
    """Memory after an hour's worth of batches."""
    figures = {}
    with _collector(99, HOUR_INTERVAL_S) as collector:
        began = time.monotonic()
        for batches in (FIRST_BATCHES, HOUR_BATCHES):
            time.sleep(max(0.0, began + WARM_UP_S + batches * HOUR_INTERVAL_S - time.monotonic()))
            figures[f"resident_mb_after_{batches}"] = round(_resident_bytes(collector.pid) / 1e6, 1)
    return figures


@contextmanager
def _collector(frequency_hz: int, interval_s: float = 5.0) -> Iterator[subprocess.Popen[bytes]]:
    broker = InProcessBroker()
    with tempfile.TemporaryDirectory() as folder, _emptied(broker.settings()):
        environ = os.environ | broker.settings().environ() | {
            "ICESTREAM_SPOOL": f"{folder}/spool",
            "ICESTREAM_UNWIND_CACHE": f"{folder}/unwind",
            "ICESTREAM_ACTIVITY_SOCKET": f"{folder}/activity.sock",
            "ICESTREAM_ACTIVITY_READERS": STREAMS_GROUP,
            "ICESTREAM_METRICS_LISTEN": "",
            "ICESTREAM_CPU_BUDGET": "0",
            "ICESTREAM_INTERVAL": str(interval_s),
        }  # fmt: skip
        command = [sys.executable, "-m", "icestream.cli", "collect", "--frequency", str(frequency_hz)]
        with subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL) as collector:
            yield collector
            collector.terminate()
    broker.close()


@contextmanager
def _load() -> Iterator[None]:
    """Processes that never rest, and short-lived ones."""
    commands = [[sys.executable, "-c", SPIN], ["sha256sum", "/dev/zero"]]
    spinning = [subprocess.Popen(commands[i % 2]) for i in range(PROCESSES)]
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
