"""What docs/backup.md promises of one machine: a copied data folder serves what it had, and so do tables that are made
again from the archive in it."""

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from icestream.kafka.clients import producer
from icestream.times import format_unix_nano
from icestream.topics import ACTIVITY, RAW
from tests.data.windows import WINDOW_NS, window
from tests.standalone.supervisor.up import Up, wait_for
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.pipeline, pytest.mark.soak]  # three icestreams; tests/jobs shows each table in CI

HOSTS, WINDOWS = 50, 12


def test_a_copy_serves_all_and_lost_tables_come_back_from_its_archive(tmp_path: Path) -> None:
    begin = (time.time_ns() - 1200 * 10**9) // WINDOW_NS * WINDOW_NS
    span = {"start": format_unix_nano(begin), "end": format_unix_nano(begin + WINDOWS * WINDOW_NS)}

    def answers(up: Up) -> list[object]:
        paths = ("/api/v1/merge", "/api/v1/top", "/api/v1/operations", "/api/v1/traces")
        return [up.client.json(path, span) for path in paths]

    (tmp_path / "data").mkdir()
    up = Up(tmp_path / "data", "--no-local-kafka")
    restored = rebuilt = None
    try:
        up.wait_ready()
        value = publish_all(up, begin)
        wait_for(lambda: up.total() == value, up.log)
        up.end(signal.SIGTERM)
        shutil.move(tmp_path / "data", tmp_path / "backup")

        shutil.copytree(tmp_path / "backup", tmp_path / "restored", symlinks=True)
        restored = Up(tmp_path / "restored", "--no-local-kafka")
        restored.wait_ready()
        before = answers(restored)
        assert restored.total() == value
        restored.end(signal.SIGTERM)

        shutil.rmtree(tmp_path / "backup/clickhouse")
        rebuilt = Up(tmp_path / "backup", "--no-local-kafka")
        rebuilt.wait_ready()
        assert rebuilt.total() == 0
        began = time.monotonic()
        replay = [sys.executable, "-m", "icestream.cli", "replay", "--data", str(rebuilt.data), "--source", "archive"]
        subprocess.run([*replay, "--from", span["start"], "--to", span["end"]], check=True, timeout=PATIENCE_S)
        print(f"{HOSTS * WINDOWS} windows in {time.monotonic() - began:.1f} s")
        assert answers(rebuilt) == before
    finally:
        for one in (up, restored, rebuilt):
            if one is not None:
                one.process.kill()
                one.process.wait()


def publish_all(up: Up, begin: int) -> int:
    """Windows of all hosts; the sum of their values."""
    sender, value = producer(up.kafka), 0
    for sequence in range(1, WINDOWS + 1):
        for host in range(HOSTS):
            made = window(begin, sequence, host, stack_seed=host % 10)
            sender.produce(ACTIVITY, made.activity, key=f"host-{host}")
            sender.produce(RAW, made.raw, key=f"host-{host}")
            value += made.value
        assert sender.flush(PATIENCE_S) == 0
    return value
