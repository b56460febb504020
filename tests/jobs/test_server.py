"""Replay and backfill as a user starts them: with the store running, without it, and wrongly."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from icestream.clickhouse import Clients
from jobs.replay import JobError
from jobs.server import Job, JobServer, socket_path, submit
from jobs.source import ArchiveSource, KafkaSource, SourceError, choose
from sinks.settings import SinkSettings
from tests.jobs.stored import T0, WINDOWS, make_stored, tables
from tests.sinks.engine import client, clients, empty

__all__ = ["client", "clients", "empty"]

END = T0 + WINDOWS * 5 * 10**9
NOWHERE = "127.0.0.1:1"


def test_the_store_runs_jobs_for_the_command(clients: Clients, engine: str, tmp_path: Path) -> None:
    stored = make_stored(clients.get(), tmp_path)
    before = tables(clients.get())
    clients.get().command("TRUNCATE TABLE samples")
    settings = SinkSettings(clickhouse=engine, archive=str(stored.archive), kafka=NOWHERE)
    server = JobServer(settings, clients)
    steps: list[float] = []
    try:
        lines = submit(Job(kind="replay", start=T0, end=END), settings, lambda part, text: steps.append(part))
        assert tables(clients.get()) == before
        assert lines[0] == "4800 samples in 48 batches recomputed"
        assert steps[-1] == 1.0
        nobody = Job(kind="backfill", start=T0, end=END, operators="no_such_module:X")
        with pytest.raises(JobError, match="no_such_module"):
            submit(nobody, settings, lambda part, text: None)
    finally:
        server.close()
    path = socket_path(engine)
    assert path is not None
    assert not path.exists()


def test_the_command_works_without_a_store_and_says_what_is_wrong(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from icestream.clickhouse import connect;"
        "from sinks.migrate import migrate; from tests.jobs.stored import *;"
        f"c = connect('chdb://{tmp_path}/clickhouse'); migrate(c); make_stored(c, Path('{tmp_path}'));"
        "c.command('TRUNCATE TABLE samples')"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", script], cwd=root, check=True)

    def command(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "icestream.cli", *arguments, "--data", str(tmp_path), "--kafka", NOWHERE],
            cwd=root, capture_output=True, text=True, env={**os.environ, "ICESTREAM_SYMBOL_CACHE": str(tmp_path / "s")},
        )  # fmt: skip

    times = ["--from", str(T0 // 10**9), "--to", str(END // 10**9)]
    dry = command("replay", *times, "--dry-run")
    assert "would be restored" in dry.stdout, dry.stderr
    done = command("replay", *times)
    assert (done.returncode, "4800 samples in 48 batches recomputed" in done.stdout) == (0, True), done.stderr
    again = command("backfill", *times)
    assert again.returncode == 0, again.stderr
    for wrong, said in (
        (["replay", "--from", "now-1h", "--to", "now"], "must have ended"),
        (["replay", "--from", "5", "--to", "5"], "is empty"),
        (["backfill", "--from", "yesterday", "--to", "now-1h"], "expected a time"),
        (["backfill", *times, "--operators", "os:path"], "expected a streams.process.Operators"),
        (["replay", *times, "--source", "kafka"], "Kafka at 127.0.0.1:1"),
    ):
        failed = command(*wrong)
        assert failed.returncode == 1
        assert said in failed.stderr
        assert "Traceback" not in failed.stderr


def test_a_database_that_another_process_has_open_is_explained(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", "import sys; from icestream.clickhouse import connect;"
         f"c = connect('chdb://{tmp_path}/db'); print('open', flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout is not None
    holder.stdout.readline()
    asking = (
        "from jobs.server import *\n"
        f"submit(Job(kind='replay', start=1, end=2), SinkSettings(clickhouse='chdb://{tmp_path}/db'), print)"
    )
    asked = subprocess.run([sys.executable, "-c", asking], capture_output=True, text=True)
    holder.communicate()
    assert "If another process has it open, end that one first" in asked.stderr


def test_the_source_is_the_archive_where_it_reaches_back_far_enough(tmp_path: Path) -> None:
    hour = tmp_path / "icestream.raw" / "date=2026-01-31" / "hour=10"
    hour.mkdir(parents=True)
    ten = 1_769_853_600 * 10**9
    settings = SinkSettings()
    assert isinstance(choose("auto", settings, tmp_path, ten), ArchiveSource)
    assert isinstance(choose("auto", settings, tmp_path, ten - 1), KafkaSource)
    assert isinstance(choose("archive", settings, tmp_path, ten - 1), ArchiveSource)
    assert isinstance(choose("kafka", settings, tmp_path, ten), KafkaSource)
    with pytest.raises(SourceError, match="no archive"):
        choose("archive", settings, None, ten)


def test_a_job_may_not_touch_what_is_being_written() -> None:
    now = time.time_ns()
    with pytest.raises(JobError, match="must have ended"):
        submit(Job(kind="replay", start=now - 10**10, end=now), SinkSettings(), lambda part, text: None)
