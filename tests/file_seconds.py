"""How long each file of tests took when nothing else ran: hooks and helpers of tests/conftest.py.

`make test KEEP_SECONDS=1` keeps the seconds of this run. Later the longest files go first, and one that takes twice as
long as before, and 20 seconds longer, is named at the end of a pass. That fails nothing: times depend on the machine.
"""

import json
import os
from collections import defaultdict
from pathlib import Path

import pytest

KEPT = Path(__file__).parent / "data" / "file_seconds.json"
PASS = os.environ.get("TEST_PASS", "")
"""Which step of `make test` this is; each has its own times."""
_took: defaultdict[str, float] = defaultdict(float)  # by file: of its tests and their fixtures, in all processes


def kept() -> dict[str, dict[str, int]]:
    """Returns the seconds that were kept, by pass and file; files that take less than 5 s are left out."""
    return json.loads(KEPT.read_text()) if KEPT.exists() else {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _took[report.nodeid.partition("::")[0]] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    seconds_of = kept()
    if PASS and os.environ.get("KEEP_SECONDS"):
        seconds_of[PASS] = {file: round(seconds) for file, seconds in sorted(_took.items()) if seconds >= 5}
        KEPT.write_text(json.dumps(seconds_of, indent=1) + "\n")
    for file, seconds in _took.items() if PASS in seconds_of else ():
        before = seconds_of[PASS].get(file, 5)
        if seconds > max(2 * before, before + 20):
            terminalreporter.write_line(f"{file} took {seconds:.0f} s, and {before} s when times were kept")
