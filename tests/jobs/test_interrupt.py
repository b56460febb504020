"""Ctrl-C in the middle of a job: it says how to continue, and what it has finished is not done again."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from icestream.times import format_unix_nano
from tests.jobs.stored import END, T0, WINDOWS
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.pipeline

ROOT = Path(__file__).parents[2]


def test_a_job_that_was_interrupted_continues_after_its_last_finished_slice(tmp_path: Path) -> None:
    script = (
        "from pathlib import Path; from icestream.clickhouse.client import connect;"
        "from sinks.clickhouse.migrate import migrate;"
        f"from tests.jobs.stored import *; c = connect('chdb://{tmp_path}/clickhouse'); migrate(c);"
        f"make_stored(c, Path('{tmp_path}'))"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)
    environ = {**os.environ, "ICESTREAM_KAFKA_TIMEOUT_S": "0.1", "PYTHONPATH": str(ROOT)}

    def start(**more: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "icestream.cli", "backfill", "--from", str(T0 // 10**9), "--to", str(END // 10**9),
             "--operators", "tests.jobs.slow:OPERATORS", "--data", str(tmp_path), "--kafka", "127.0.0.1:1"],
            cwd=ROOT, env=environ | more, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=_interruptible,
        )  # fmt: skip

    middle = tmp_path / "in the middle"
    interrupted = start(SLOW=str(middle))
    wait_until(lambda: middle.exists() or interrupted.poll() is not None)
    interrupted.send_signal(signal.SIGINT)
    _, errors = interrupted.communicate(timeout=PATIENCE_S)
    assert interrupted.returncode == 128 + signal.SIGINT, errors
    times = f"--from {format_unix_nano(T0)} --to {format_unix_nano(END)}"
    assert f"to continue, start it again with {times} and otherwise the same arguments" in errors
    continued = start()
    output, errors = continued.communicate()
    assert continued.returncode == 0, errors
    assert "continued an earlier run that had not finished" in output
    samples = re.search(r"(\d+) samples in", output)
    assert samples is not None
    assert 0 < int(samples[1]) < 2 * WINDOWS * 200  # the first slice was finished


def _interruptible() -> None:
    """Tests that were started in the background ignore Ctrl-C, and so would the programs that they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
