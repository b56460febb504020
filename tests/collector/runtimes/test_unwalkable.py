"""Code whose compiler keeps no frame pointers: stacks end there and say so."""

import subprocess
from pathlib import Path

import pytest

from tests.collector.unwind.test_without_rules import share, stacks

pytestmark = pytest.mark.ebpf


def test_stacks_end_at_code_of_a_compiler_that_keeps_no_frame_pointers(tmp_path: Path) -> None:
    source = Path(__file__).with_name("compiled.c")
    subprocess.run(["gcc", "-O2", "-rdynamic", source, "-o", tmp_path / "compiled"], check=True)
    found = stacks([tmp_path / "compiled"], lambda found: share(found, "code of Ruby") > 0.95)
    assert share(found, "code of Ruby") > 0.95
    subprocess.run(["gcc", "-O2", source, "-o", tmp_path / "unknown"], check=True)
    found = stacks([tmp_path / "unknown"], lambda found: share(found, "no unwinding rule") > 0.95)
    assert share(found, "no unwinding rule") > 0.95
