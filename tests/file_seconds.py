"""How long each file of tests took when nothing else ran, and which take much longer now: hooks of tests/conftest.py.

`make test KEEP_SECONDS=1` keeps the seconds of this run. A file that takes twice as long as before, and 20 seconds
longer, is named at the end of a pass, and fails nothing: times depend on the machine.
"""

import json
import os
from collections import Counter
from pathlib import Path

import pytest

KEPT = Path(__file__).parent / "data" / "file_seconds.json"
PASS = os.environ.get("TEST_PASS", "")
"""Which step of `make test` this is; each has its own times."""
_took: Counter[str] = Counter()  # file -> seconds of its tests and their fixtures, in all processes


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _took[report.nodeid.partition("::")[0]] += report.duration  # type: ignore[assignment]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    if PASS and os.environ.get("KEEP_SECONDS"):
        kept[PASS] = {file: round(seconds) for file, seconds in sorted(_took.items()) if seconds >= 5}
        KEPT.write_text(json.dumps(kept, indent=1) + "\n")
    for file, seconds in _took.most_common() if PASS in kept else ():
        before = kept[PASS].get(file, 5)
        if seconds > max(2 * before, before + 20):
            terminalreporter.write_line(f"{file} took {seconds:.0f} s, and {before} s when times were kept")
