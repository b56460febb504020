"""icestream beside Pyroscope: one load is pushed to both, and both answer the same calls.

    python -m benchmarks.pyroscope BINARY [--profiles 18000] [--senders 64] [--runs 9]

BINARY is a program `pyroscope`. The load is that of benchmarks.gateway, from 5 pods of each of its 10 services: 18,000
profiles are 2.7 million samples in an hour. It is pushed as SDKs do (PusherService), first to Pyroscope, one process
with its data in files; then to icestream: an Apache Kafka (`make kafka`), gateway, stream worker and store. When
all is stored, Pyroscope and the store are started again, and asked by calls of QuerierService in protobuf, as Grafana
asks.

Prints one JSON object. `*_ms` are medians of the time from a call to its complete answer, after one call that does not
count; `first_merge_ms` is the first call after the start. Megabytes are of resident memory (VmRSS, of it RssAnon, and
VmHWM), after the pushes (of all parts for icestream, and of Kafka) and after the calls. `merged_ns`: the CPU time in
the merge of everything, which is equal if both have everything.
"""

import argparse
import base64
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from benchmarks.gateway.profiles import SERVICES, WINDOW_NS, make_profiles
from benchmarks.gateway.running import PARTS, cpu_seconds, start_parts, wait_until_archived, wait_until_stored
from collector.guest.own_cpu import seconds_of
from icestream.commands.topics import create
from icestream.pyroscope import querier_pb2 as messages
from standalone.supervisor.local_kafka import LocalKafka
from tests.pipeline.running import Pipeline
from tests.ports import free_port

PODS = 5
_WINDOW_MS = WINDOW_NS // 10**6
_TYPE = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
_PROTO = "application/proto"
_PATIENCE_S = 600.0
_MAX_NODES = 16_384
_RINGS = (
    "memberlist.advertise",
    "query-frontend.instance",
    *(f"{part}.instance" for part in (
        "compactor.ring", "distributor.ring", "overrides-exporter.ring", "query-scheduler.ring",
        "store-gateway.sharding-ring",
    )),
)  # fmt: skip
_LIFECYCLERS = ("ingester.lifecycler", "segment-writer.lifecycler")
"""Modules of Pyroscope that register with each other, by the prefixes of their flags."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=Path, metavar="BINARY", help="a program `pyroscope`")
    parser.add_argument("--profiles", type=int, default=18_000, help="how many (default: 18,000)")
    parser.add_argument("--senders", type=int, default=64, help="at the same time (default: 64)")
    parser.add_argument("--runs", type=int, default=9, help="of each call (default: 9)")
    args = parser.parse_args(argv)
    made_at_ms = time.time_ns() // 10**6
    bodies = [
        _pushed(service, number // SERVICES % PODS, body)
        for number, (service, body) in enumerate(make_profiles(args.profiles, pods=PODS))
    ]
    length_ms = args.profiles // (SERVICES * PODS) * _WINDOW_MS
    calls = make_calls(made_at_ms - 60_000 - length_ms, made_at_ms)
    with tempfile.TemporaryDirectory(prefix="beside-pyroscope-") as folder:
        theirs = measure_pyroscope(args.binary.resolve(), Path(folder) / "pyroscope", bodies, calls, args)
        ours = measure_icestream(Path(folder) / "icestream", bodies, calls, args)
    print(json.dumps({"profiles": args.profiles, "icestream": ours, "pyroscope": theirs}))
    return 0


Calls = dict[str, tuple[str, Message]]


def make_calls(start_ms: int, end_ms: int) -> Calls:
    """QuerierService's methods, and what they are called with."""
    whole: dict[str, Any] = {"start": start_ms, "end": end_ms}
    minutes = {"start": end_ms - 600_000, "end": end_ms - 300_000}
    service, other = '{service_name="service-7"}', '{service_name="service-8"}'

    def merge(selector: str, between: dict[str, Any]) -> messages.SelectMergeStacktracesRequest:
        return messages.SelectMergeStacktracesRequest(
            profile_typeID=_TYPE, label_selector=selector, max_nodes=_MAX_NODES, **between
        )

    def series(*labels: str) -> Message:
        return messages.SelectSeriesRequest(
            profile_typeID=_TYPE, label_selector="{}", step=15, group_by=labels, **whole
        )

    return {
        "merge_service": ("SelectMergeStacktraces", merge(service, whole)),
        "merge_service_5_minutes": ("SelectMergeStacktraces", merge(service, minutes)),
        "merge_all": ("SelectMergeStacktraces", merge("{}", whole)),
        "diff_services": ("Diff", messages.DiffRequest(left=merge(service, whole), right=merge(other, whole))),
        "timeline": ("SelectSeries", series()),
        "timeline_by_service": ("SelectSeries", series("service_name")),
        "label_names": ("LabelNames", messages.LabelNamesRequest(**whole)),
        "label_values": ("LabelValues", messages.LabelValuesRequest(name="service_name", **whole)),
        "series": ("Series", messages.SeriesRequest(label_names=["service_name", "pod"], **whole)),
    }


def measure_icestream(folder: Path, bodies: list[bytes], calls: Calls, args: argparse.Namespace) -> dict[str, object]:
    data = folder / "data"
    data.mkdir(parents=True)
    kafka = LocalKafka(folder / "kafka")
    kafka.start()
    create(kafka.settings(), partitions=2, replication=1)
    pipeline = Pipeline(kafka.settings(), data)
    try:
        start_parts(pipeline)
        pushed_s = push_all(pipeline.gateway, bodies, args.senders)
        wait_until_stored(pipeline)
        wait_until_archived(pipeline)
        used = cpu_seconds(pipeline, kafka)
        assert kafka.process is not None
        processes = {name: pipeline.pid(name) for name in PARTS} | {"kafka": kafka.process.pid}
        result: dict[str, object] = {
            "pushed_s": pushed_s,
            "push_cpu_s": {name: round(seconds, 1) for name, seconds in used.items()},
            "push_cpu_s_all": round(sum(used.values()), 1),
            "push_mb": {name: memory_mb(pid) for name, pid in processes.items()},
        }
        pipeline.stop("store")
        pipeline.start("store")
        pipeline.wait(lambda: pipeline.get("/readyz"), lambda answer: answer["status"] == "ready", _PATIENCE_S)
        wait_until_idle(pipeline.pid("store"))
        return result | ask_all(f"127.0.0.1:{pipeline.port}", pipeline.pid("store"), calls, args.runs)
    finally:
        pipeline.close()
        kafka.close()


def measure_pyroscope(
    binary: Path, folder: Path, bodies: list[bytes], calls: Calls, args: argparse.Namespace
) -> dict[str, object]:
    folder.mkdir(parents=True)
    ports = {"http": free_port(), "grpc": free_port(), "memberlist": free_port(), "raft": free_port()}
    address = f"127.0.0.1:{ports['http']}"
    raft = f"127.0.0.1:{ports['raft']}"
    command = [
        str(binary), "-target=all", "-self-profiling.disable-push=true", "-usage-stats.enabled=false",
        "-server.http-listen-address=127.0.0.1", f"-server.http-listen-port={ports['http']}",
        "-server.grpc-listen-address=127.0.0.1", f"-server.grpc-listen-port={ports['grpc']}",
        "-memberlist.bind-addr=127.0.0.1", f"-memberlist.bind-port={ports['memberlist']}",
        f"-metastore.address=127.0.0.1:{ports['grpc']}", f"-query-backend.address=127.0.0.1:{ports['grpc']}",
        "-architecture.storage=v2", "-validation.reject-older-than=0s", f"-metastore.raft.server-id={raft}",
        f"-metastore.raft.bind-address={raft}", f"-metastore.raft.advertise-address={raft}",
        "-storage.backend=filesystem", f"-storage.filesystem.dir={folder}/storage",
        "-distributor.ingestion-rate-limit-mb=1000", "-distributor.ingestion-burst-size-mb=1000",
        *(f"-{part}-addr=127.0.0.1" for part in _RINGS), *(f"-{part}.addr=127.0.0.1" for part in _LIFECYCLERS),
    ]  # fmt: skip

    def start() -> subprocess.Popen[bytes]:
        with open(folder / "log", "ab") as log:
            process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        _wait(lambda: _ready(address), process, folder / "log")
        return process

    process = start()
    try:
        pushed_s = push_all(address, bodies, args.senders)
        wait_until_idle(process.pid)
        result: dict[str, object] = {
            "pushed_s": pushed_s,
            "push_cpu_s_all": round(seconds_of(process.pid), 1),
            "push_mb": memory_mb(process.pid),
        }
        process.terminate()
        process.wait(_PATIENCE_S)
        process = start()
        wait_until_idle(process.pid)
        return result | ask_all(address, process.pid, calls, args.runs)
    finally:
        process.kill()
        process.wait()


def push_all(address: str, bodies: list[bytes], senders: int) -> float:
    """Returns the seconds that it took. A push that is refused for now is repeated."""

    def push(body: bytes) -> None:
        for _ in range(100):
            status, answer = call(address, "/push.v1.PusherService/Push", body)
            if status == 200:
                return
            if status not in (429, 503):
                break
            time.sleep(0.5)
        raise RuntimeError(f"HTTP {status}: {answer[:300]!r}")

    started = time.perf_counter()
    with ThreadPoolExecutor(senders) as pool:
        list(pool.map(push, bodies))
    return round(time.perf_counter() - started, 1)


def ask_all(address: str, pid: int, calls: Calls, runs: int) -> dict[str, object]:
    """Milliseconds, elapsed and of CPU of the process `pid`, and its memory."""
    cpu = seconds_of(pid)
    result: dict[str, object] = {
        "started_mb": memory_mb(pid),
        "first_merge_ms": ask(address, *calls["merge_service"])[0],
    }
    result["first_merge_cpu_ms"] = round(1000 * (seconds_of(pid) - cpu))
    for name, asked in calls.items():
        ask(address, *asked)
        cpu = seconds_of(pid)
        result[f"{name}_ms"] = statistics.median(ask(address, *asked)[0] for _ in range(runs))
        result[f"{name}_cpu_ms"] = round(1000 * (seconds_of(pid) - cpu) / runs, 1)
    merged = messages.SelectMergeStacktracesResponse.FromString(ask(address, *calls["merge_all"])[1])
    return result | {"merged_ns": merged.flamegraph.total, "asked_mb": memory_mb(pid)}


def ask(address: str, method: str, asked: Message) -> tuple[float, bytes]:
    """Returns milliseconds and the answer."""
    started = time.perf_counter()
    status, answer = call(address, f"/querier.v1.QuerierService/{method}", asked.SerializeToString(), _PROTO)
    elapsed_ms = round((time.perf_counter() - started) * 1000, 1)
    if status != 200:
        raise RuntimeError(f"{method}: HTTP {status}: {answer[:300]!r}")
    return elapsed_ms, answer


def call(address: str, path: str, body: bytes, media_type: str = "application/json") -> tuple[int, bytes]:
    connection = HTTPConnection(address, timeout=_PATIENCE_S)
    try:
        connection.request("POST", path, body, {"Content-Type": media_type})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def wait_until_idle(pid: int) -> None:
    """Returns when a process has used less than a tenth of a CPU for 10 seconds."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        before = seconds_of(pid)
        time.sleep(10)
        if seconds_of(pid) - before < 1:
            return


def memory_mb(pid: int) -> dict[str, int]:
    """Resident memory now, of it what is not of files, and resident memory at most."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    names = {"now": "VmRSS", "anonymous": "RssAnon", "peak": "VmHWM"}
    return {name: int(fields[field].split()[0]) // 1024 for name, field in names.items()}


def _pushed(service: int, pod: int, profile: bytes) -> bytes:
    """A call of PusherService.Push."""
    labels = {"__name__": "process_cpu", "service_name": f"service-{service}", "pod": f"pod-{pod}"}
    series = {
        "labels": [{"name": name, "value": value} for name, value in labels.items()],
        "samples": [{"rawProfile": base64.b64encode(profile).decode()}],
    }
    return json.dumps({"series": [series]}).encode()


def _ready(address: str) -> bool:
    connection = HTTPConnection(address, timeout=5)
    try:
        connection.request("GET", "/ready")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _wait(until: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not until():
        if time.monotonic() > deadline or process.poll() is not None:
            raise RuntimeError(f"Pyroscope is not ready:\n{log.read_text()[-3000:]}")
        time.sleep(0.5)


if __name__ == "__main__":
    sys.exit(main())
