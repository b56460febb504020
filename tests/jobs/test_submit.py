"""Replay and backfill as a user starts them: with a running store, without a store, and with mistakes."""

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable

from icestream import cli
from icestream.clickhouse.client import Clients
from icestream.topics import RAW
from jobs.job import Job, JobError
from jobs.server import JobServer, socket_path
from jobs.submit import submit
from sinks.settings import StorageSettings
from tests.jobs.stored import END, REQUEST_LABELS, T0, make_stored, tables
from tests.sinks.engine import client, clients, empty

__all__ = ["client", "clients", "empty"]

pytestmark = pytest.mark.pipeline

NOWHERE = "127.0.0.1:1"


def test_the_store_runs_jobs_for_the_command_with_its_own_settings(
    clients: Clients, engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = make_stored(clients.get(), tmp_path)
    before = tables(clients.get())
    clients.get().command("TRUNCATE TABLE samples")
    settings = StorageSettings(
        clickhouse=engine, archive=str(stored.archive), kafka=NOWHERE, kafka_timeout_s=0.1,
        request_labels=",".join(REQUEST_LABELS),
    )  # fmt: skip
    server = JobServer(settings, clients)
    steps: list[float] = []
    try:
        outcome = submit(
            Job(kind="replay", start_unix_nano=T0, end_unix_nano=END), settings, lambda part, text: steps.append(part)
        )
        assert tables(clients.get()) == before
        assert outcome.is_complete
        assert outcome.lines[0] == "2400 samples in 24 batches recomputed"
        assert steps[-1] == 1.0
        unknown = Job(kind="backfill", start_unix_nano=T0, end_unix_nano=END, operators="no_such_module:X")
        with pytest.raises(JobError, match="no_such_module"):
            submit(unknown, settings, lambda part, text: None)
        command = ["replay", "--from", str(T0 // 10**9), "--to", str(END // 10**9), "--clickhouse", engine]
        ignored = ["--archive", str(tmp_path / "other"), "--lake", str(tmp_path / "lake")]
        assert cli.main([*command, *ignored]) == 1
        assert "leave out --archive, --lake, or stop the store" in capsys.readouterr().err
        assert cli.main(command) == 0
    finally:
        server.close()
    path = socket_path(engine)
    assert path is not None
    assert not path.exists()


def test_a_command_that_is_gone_is_no_error_in_the_store(clients: Clients, engine: str) -> None:
    server = JobServer(StorageSettings(clickhouse=engine), clients)
    try:
        ours, gone = socket.socketpair()
        gone.sendall(b"{}\n")
        gone.close()
        server._answer(ours)
    finally:
        server.close()


def test_the_command_works_without_a_store_and_says_what_is_wrong(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    environ = {**os.environ, "ICESTREAM_SYMBOL_CACHE": str(tmp_path / "s"), "ICESTREAM_KAFKA_TIMEOUT_S": "0.1"}
    where = ["--data", str(tmp_path), "--kafka", NOWHERE]

    def commands(*lines: list[str], before: str = "pass") -> "subprocess.CompletedProcess[str]":
        """Runs commands in one process, as each would import for seconds; says their exit codes on its last line."""
        script = (
            f"import json, sys; {before}; from icestream import cli;"
            "print(*[cli.main(line) for line in json.loads(sys.argv[1])])"
        )
        return subprocess.run(
            [sys.executable, "-c", script, json.dumps([[*line, *where] for line in lines])],
            cwd=root, capture_output=True, text=True, env=environ,
        )  # fmt: skip

    store = (
        "from pathlib import Path; from icestream.clickhouse.client import connect;"
        "from sinks.clickhouse.migrate import migrate; from tests.jobs.stored import *;"
        f"c = connect('chdb://{tmp_path}/clickhouse'); migrate(c); make_stored(c, Path('{tmp_path}'));"
        "c.command('TRUNCATE TABLE samples'); c.close()"
    )
    times = ["--from", str(T0 // 10**9), "--to", str(END // 10**9)]
    both = commands(["replay", *times, "--dry-run"], ["replay", *times, "--jobs", "2"], before=store)
    planned, _, replayed = both.stdout.partition("would be restored\n")
    assert "samples of 4 of 4 minutes of hosts, activity of 0 of 4 minutes of hosts, 0 spans" in planned, both.stderr
    assert "2400 samples in 24 batches recomputed" in replayed, both.stderr
    assert replayed.splitlines()[-1] == "0 0", both.stderr
    lake = str(tmp_path / "lake")
    damaged = min((tmp_path / "archive" / RAW).rglob("*.parquet"))
    wrong = {
        "must have ended": ["replay", "--from", "now-1h", "--to", "now"],
        "is empty": ["replay", "--from", "5", "--to", "5"],
        "expected a time": ["backfill", "--from", "yesterday", "--to", "now-1h"],
        "expected a streams.partition.process.Operators": ["backfill", *times, "--operators", "os:path"],
        "Kafka at 127.0.0.1:1": ["replay", *times, "--source", "kafka"],
        "single underscores": ["replay", *times, "--name", "a; DROP"],
        "1 to 256": ["replay", *times, "--jobs", "0"],
    }
    backfill = ["backfill", *times, "--lake", lake]
    done = commands([*backfill, "--dry-run"], backfill, *wrong.values())
    planned, _, backfilled = done.stdout.partition("recomputed, and replaced")
    assert "would replace rows of 24 batches" in planned, done.stderr
    assert f"would replace the same range in the lake {lake}" in planned
    assert backfilled.splitlines()[-1].split() == ["0", "0", *["1"] * len(wrong)], done.stderr
    assert len(DeltaTable(f"{lake}/samples").to_pyarrow_table()) == 2400
    said = [line for line in done.stderr.splitlines() if line.startswith("icestream ")]
    assert len(said) == len(wrong), done.stderr
    for message, line in zip(wrong, said, strict=True):
        assert message in line
    assert "Traceback" not in done.stderr

    damage = f"from pathlib import Path; [Path(f).write_bytes(b'PAR1') for f in {[str(damaged)]}]"
    done = commands(["replay", *times], backfill, before=damage)
    assert done.stdout.count(f"{damaged} is damaged: ") == 2, done.stderr
    assert done.stdout.splitlines()[-1] == "1 1"
    assert done.stderr.count("the source lacks data of this range") == 2


def test_a_database_that_another_process_has_open_is_explained(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", "import sys; from icestream.clickhouse.client import connect;"
         f"c = connect('chdb://{tmp_path}/db'); print('open', flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout is not None
    holder.stdout.readline()
    script = (
        "from jobs.submit import *\n"
        "job = Job(kind='replay', start_unix_nano=1, end_unix_nano=2_000_000)\n"
        f"submit(job, StorageSettings(clickhouse='chdb://{tmp_path}/db'), print)"
    )
    asked = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    holder.communicate()
    assert "If another process has it open, end that one first" in asked.stderr


def test_a_job_makes_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    times = ["--from", str(T0 // 10**9), "--to", str(END // 10**9)]
    for command in ("replay", "backfill"):
        assert cli.main([command, *times, "--data", str(tmp_path / "misspelt")]) == 1
        assert f"there is no store in {tmp_path}/misspelt/clickhouse: " in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_job_refuses_a_range_that_the_pipeline_still_writes() -> None:
    now = time.time_ns()
    with pytest.raises(JobError, match="must have ended"):
        submit(
            Job(kind="replay", start_unix_nano=now - 10**10, end_unix_nano=now),
            StorageSettings(),
            lambda part, text: None,
        )


def test_without_chdb_the_message_names_the_package_and_the_other_choice(tmp_path: Path) -> None:
    (tmp_path / "db").mkdir()
    script = (
        "import sys; sys.modules['chdb'] = None\n"
        "from jobs.submit import *\n"
        "job = Job(kind='replay', start_unix_nano=1, end_unix_nano=2_000_000)\n"
        f"submit(job, StorageSettings(clickhouse='chdb://{tmp_path}/db'), print)"
    )
    asked = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    line = asked.stderr.splitlines()[-1]
    assert line.startswith("jobs.job.JobError")
    assert "chdb package" in line
    assert "--clickhouse" in line
