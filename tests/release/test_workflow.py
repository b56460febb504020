"""The workflow that builds releases, by actionlint."""

import subprocess
from pathlib import Path

import pytest

WORKFLOWS = Path(__file__).parents[2] / ".github/workflows"
ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.7"


@pytest.mark.soak  # builds the linter at first
def test_the_workflow_has_no_mistakes() -> None:
    done = subprocess.run(
        ["go", "run", ACTIONLINT, *WORKFLOWS.glob("*.yml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
