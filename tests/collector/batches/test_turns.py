"""Code that takes turns at the same addresses: each sample counts for what was there at its time."""

import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from icestream.columns.packed import column
from icestream.settings import KafkaSettings
from icestream.topics import RAW
from icestream.v1.common_pb2 import Mapping
from icestream.v1.raw_pb2 import RawBatch
from tests.collector.test_agent import PROGRAMS, collecting
from tests.pipeline.reading import messages
from tests.shares import compare_share

pytestmark = pytest.mark.ebpf
SOURCE = PROGRAMS / "turns.c"
RUN_S, WINDOW_S = 12, 3
WITHIN = 0.06


def build(folder: Path, *flags: str) -> tuple[Path, Path]:
    """Two files with the same code at the same addresses."""
    paths = folder / "first", folder / "second"
    for path in paths:
        name = f"-Wl,--build-id=0x{path.name.encode().hex()}"
        subprocess.run(["gcc", "-O1", *flags, SOURCE, name, "-o", path, "-ldl"], check=True)
    return paths


def samples(batch: RawBatch, pid: int) -> Iterator[tuple[str, str, str]]:
    """The innermost file, service and thread name of each sample of a process."""
    labels = [{label.name: label.value for label in series.labels} for series in batch.series]
    depth = column(batch, "stack_depth").tolist()
    frames = column(batch, "stack_frames").tolist()
    mapping = column(batch, "location_mapping").tolist()
    ends = [sum(depth[: i + 1]) for i in range(len(depth))]
    columns = (column(batch, f"sample_{name}").tolist() for name in ("pid", "series", "stack"))
    for of, series, stack in zip(*columns, strict=True):
        if of == pid:
            used = [batch.mappings[mapping[frame]] for frame in frames[ends[stack] - depth[stack] : ends[stack]]]
            file = next((each.file for each in used if each.kind != Mapping.KERNEL), "[kernel]")
            yield os.path.basename(file), labels[series].get("service", ""), labels[series].get("thread_name", "")


def seen(broker: KafkaSettings, folder: Path, *command: str | Path, pid: int = 0) -> Counter[tuple[str, str, str]]:
    """The samples of a program that the collector sees from its start on, or of the processes with this ID that it
    starts."""
    with collecting(broker, folder, "--interval", str(WINDOW_S), "--frequency", "499", "--cpu-budget", "0"):
        with subprocess.Popen(command, env={**os.environ, "OTEL_SERVICE_NAME": "first"}) as process:
            time.sleep(RUN_S)
            process.kill()
        time.sleep(WINDOW_S)
    found: Counter[tuple[str, str, str]] = Counter()
    for message in messages(broker, RAW):
        found.update(samples(RawBatch.FromString(message.value() or b""), pid or process.pid))
    return found


def share(found: Counter[tuple[str, str, str]], field: int) -> float:
    """The share of the first of the two in all samples; nearly all belong to one of the two."""
    by = Counter[str]()
    for fields, count in found.items():
        by[fields[field]] += count
    assert by.total() > 300
    assert by["first"] + by["second"] > 0.95 * by.total()
    return by["first"] / by.total()


def test_libraries_that_take_turns_at_one_address_have_their_own_samples(
    in_process_broker: KafkaSettings, tmp_path: Path
) -> None:
    libraries = build(tmp_path, "-shared", "-fPIC", "-DLIBRARY")
    program = tmp_path / "turns"
    subprocess.run(["gcc", "-O1", SOURCE, "-o", program, "-ldl"], check=True)
    found = seen(in_process_broker, tmp_path, program, "libraries", "60", *libraries)
    named = Counter({fields: count for fields, count in found.items() if fields[0] in ("first", "second")})
    assert named.total() > 0.9 * found.total()
    compare_share("libraries in turns at one address: the first", 0.25, share(named, 0), WITHIN)


def test_programs_that_execute_each_other_have_their_own_samples_and_labels(
    in_process_broker: KafkaSettings, tmp_path: Path
) -> None:
    first, second = build(tmp_path, "-no-pie", "-fno-pie")
    found = seen(in_process_broker, tmp_path, first, "programs", "200", first, second)
    check_all("programs that execute each other", found)


def test_processes_that_get_the_same_id_have_their_own_samples_and_labels(
    in_process_broker: KafkaSettings, tmp_path: Path
) -> None:
    first, second = build(tmp_path, "-no-pie", "-fno-pie")
    with subprocess.Popen("true") as process:
        pass
    command = first, "processes", "200", first, second, str(process.pid)
    check_all("processes of one ID", seen(in_process_broker, tmp_path, *command, pid=process.pid))


def check_all(what: str, found: Counter[tuple[str, str, str]]) -> None:
    """Files, services and thread names."""
    named = Counter({fields: count for fields, count in found.items() if fields[0] in ("first", "second")})
    compare_share(f"{what}: functions of the first", 0.25, share(named, 0), WITHIN)
    for field, kind in (1, "service"), (2, "thread name"):
        compare_share(f"{what}: {kind} of the first", 0.25, share(found, field), WITHIN)
        assert sum(count for fields, count in named.items() if fields[0] != fields[field]) < 0.04 * named.total()
