"""Consumers that start beside a running `icestream up`, whose broker has dropped most of what was announced."""

import contextlib
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from icestream.cli import main
from icestream.kafka.clients import producer
from icestream.topics import DEFAULT_PROFILE_TYPE, RAW
from sinks.lake.delta import Lake
from sinks.lake.late_names import read_stored_names
from sinks.lake.stacks import sampled_stacks
from tests.standalone.supervisor.up import Up, wait_for
from tests.streams.test_flatten import Reader
from tests.streams.test_late_flatten import BATCHES, SAMPLED, batch
from tests.waiting import PATIENCE_S, wait_until

STACKS = BATCHES * SAMPLED + 5
SAMPLES = BATCHES * (100 + SAMPLED)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    up = Up(tmp_path_factory.mktemp("late") / "data", "--no-local-kafka", "--no-gateway")
    try:
        up.wait_ready()
        sender, chance = producer(up.kafka), random.Random(1)
        start = time.time_ns() - 600 * 10**9
        for sequence in range(1, BATCHES + 1):
            sender.produce(RAW, batch(sequence, chance, start), key="host")
            assert sender.flush(PATIENCE_S) == 0
            wait_for(lambda total=sequence * (100 + SAMPLED) * 10: up.total() >= total, up.log)
        yield up
    finally:
        up.process.terminate()
        up.process.wait(PATIENCE_S)


@contextlib.contextmanager
def beside(up: Up, folder: Path, *arguments: str) -> Iterator[None]:
    """A command beside `icestream up`, which it finds by the data folder."""
    log = folder / "log"
    environ = os.environ | {"ICESTREAM_DATA": str(up.data), "ICESTREAM_METRICS_LISTEN": ""}
    with log.open("ab") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "icestream.cli", *arguments, "--kafka", up.info.kafka], env=environ, stderr=file
        )
        try:
            yield
        finally:
            process.terminate()
            assert process.wait(PATIENCE_S) == 0, log.read_text()


def lacking(folder: Path) -> tuple[int, int]:
    """How many stacks the samples of a lake have, and how many of them lack names."""
    lake = Lake(str(folder))
    if (samples := lake.open("samples")) is None:
        return 0, 0
    stack_ids, stored = sampled_stacks(samples, None), read_stored_names(lake, None)
    return len(stack_ids), len(stored.lacking(stack_ids))


def test_a_late_flatten_gets_from_the_api_what_kafka_has_dropped(up: Up, tmp_path: Path) -> None:
    reader = Reader(up.kafka)
    with beside(up, tmp_path, "flatten", "--interval", "0.2"):
        wait_until(lambda: reader.total() >= SAMPLES * 10, reader.total)
    named = Counter[str]()
    for record in reader.records:
        assert record["profile_type"] == DEFAULT_PROFILE_TYPE
        assert len(record["functions"]) == len(record["modules"]) == len(record["files"])
        named[record["functions"][-1]] += record["samples"]
    reader.close()
    assert named.total() == SAMPLES
    assert len(named) == STACKS
    assert "[unresolved stack]" not in named


def test_a_late_sink_of_the_lake_does_so_too(up: Up, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lake = tmp_path / "lake"
    with beside(up, tmp_path, "sink", "lake", "--lake", str(lake), "--lake-flush-s", "1"):
        wait_until(lambda: lacking(lake) == (STACKS, 0), lambda: lacking(lake))
    for name in ("nodes", "locations"):  # as if the API had been away
        table = Lake(str(lake)).open(name)
        assert table is not None
        table.delete()
    fill = ["lake", "fill-names", "--lake", str(lake), "--names-url"]
    assert main([*fill, "http://127.0.0.1:1"]) == 1
    assert "no answer from http://127.0.0.1:1" in capsys.readouterr().err
    assert lacking(lake) == (STACKS, STACKS)
    for lacked in (STACKS, 0):
        assert main([*fill, f"http://{up.api}"]) == 0
        said = capsys.readouterr().out
        assert said == f"{STACKS} stacks, {lacked} of them lacked names, {lacked} of these have got them\n"
    assert lacking(lake) == (STACKS, 0)
