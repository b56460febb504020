"""What a running collector may still do, as root and as another user who was given the documented capabilities."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from collector.delivery.message_log import decode
from collector.guest.capabilities import (
    Capability,
    at_run_time,
    kernel_version,
    of_children,
)
from icestream.columns.packed import column
from icestream.topics import RAW
from icestream.v1.common_pb2 import Mapping
from icestream.v1.raw_pb2 import RawBatch
from tests.endless import endless
from tests.waiting import wait_until

ICESTREAM = Path(sys.executable).parent / "icestream"
DOCUMENTED = "perfmon,bpf,sys_ptrace,dac_read_search,syslog,checkpoint_restore"
EVERY = frozenset(Capability)
RUNNING = {
    Capability.SYS_PTRACE, Capability.DAC_READ_SEARCH, Capability.SYSLOG, Capability.PERFMON,
    Capability.CHECKPOINT_RESTORE,
}  # fmt: skip


def test_on_a_kernel_of_today_it_needs_neither_sys_admin_nor_bpf_once_it_runs() -> None:
    assert at_run_time(EVERY, (6, 1)) == RUNNING
    assert at_run_time(EVERY, (5, 15)) == RUNNING | {Capability.BPF}


def test_sys_admin_stays_only_in_place_of_one_that_is_not_there() -> None:
    assert Capability.SYS_ADMIN in at_run_time(EVERY - {Capability.CHECKPOINT_RESTORE}, (5, 10))
    assert Capability.SYS_ADMIN in at_run_time(EVERY - {Capability.PERFMON}, (6, 1))
    assert at_run_time(frozenset(RUNNING), (6, 1)) == RUNNING
    assert at_run_time(frozenset(), (6, 1)) == frozenset()


def test_children_read_files_and_no_more() -> None:
    assert of_children(at_run_time(EVERY, (6, 1))) == RUNNING - {Capability.PERFMON}
    assert Capability.SYS_ADMIN in of_children(at_run_time(EVERY - {Capability.CHECKPOINT_RESTORE}, (5, 10)))


@pytest.mark.parametrize(
    ("release", "version"),
    [("6.18.44-fc-v657", (6, 18)), ("5.8", (5, 8)), ("4.18.0-553.el8_10.x86_64", (4, 18)), ("7-rc1", (7, 0))],
)
def test_releases_are_read(release: str, version: tuple[int, int]) -> None:
    assert kernel_version(release) == version


def masks(task: Path) -> dict[str, int]:
    found = re.findall(r"^(Cap\w+|NoNewPrivs):\s+(\w+)$", (task / "status").read_text(), re.MULTILINE)
    return {name: int(value, 16) for name, value in found}


def masks_of_threads(pid: int) -> list[dict[str, int]]:
    """The masks of each thread that does not end while it is looked at."""
    kept = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            kept.append(masks(task))
    return kept


@contextmanager
def collecting(folder: Path, *before: str) -> Iterator[subprocess.Popen[bytes]]:
    """A collector, run by the command `before`, that has written two windows."""
    command = [
        *before, str(ICESTREAM), "collect", "--kafka", "127.0.0.1:1", "--interval", "0.5", "--frequency", "199",
        "--spool", f"{folder}/spool", "--activity-socket", f"{folder}/activity.sock", "--metrics-listen", "",
    ]  # fmt: skip
    process = subprocess.Popen(command, cwd=folder, stderr=(folder / "said").open("wb"))
    try:
        wait_until(lambda: len(list(folder.glob("spool/*.messages"))) >= 2 or process.poll() is not None)
        assert process.poll() is None, (folder / "said").read_text()
        yield process
    finally:
        process.kill()
        process.wait()


def windows(folder: Path) -> Iterator[RawBatch]:
    for path in sorted(folder.glob("spool/*.messages")):
        with open(path, "rb") as file:
            yield from (RawBatch.FromString(message.value) for message in decode(file) if message.topic == RAW)


# The unit's root has less to give up than root, and gives it up in the same way: only in `make soak`.
@pytest.mark.ebpf
@pytest.mark.parametrize("user", ["root", pytest.param("the unit's root", marks=pytest.mark.soak), "another"])
def test_a_running_collector_profiles_with_what_it_kept_in_every_thread(tmp_path: Path, user: str) -> None:
    given = ",".join(f"+{name}" for name in DOCUMENTED.split(","))
    before = {
        "root": [],
        "the unit's root": [
            "setpriv", f"--bounding-set=-all,{given},+setpcap", f"--inh-caps=-all,{given}",
            f"--ambient-caps=-all,{given}", "--no-new-privs",
        ],
        "another": [
            "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", f"--bounding-set=-all,{given}",
            f"--inh-caps=-all,{given}", f"--ambient-caps=-all,{given}",
        ],
    }[user]  # fmt: skip
    if user == "another":
        for folder in (tmp_path, *list(tmp_path.parents)[:3]):
            folder.chmod(folder.stat().st_mode | 0o055)
        os.chown(tmp_path, 65534, 65534)
    with collecting(tmp_path, *before) as process, endless("while True: sum(range(1000))") as program:
        kept = masks_of_threads(process.pid)
        wait_until(lambda: knows_files_and_kernel(tmp_path, program.pid))
    mask = sum(1 << capability for capability in at_run_time(EVERY, kernel_version()))
    children = sum(1 << capability for capability in of_children(at_run_time(EVERY, kernel_version())))
    assert len(kept) > 3
    for task in kept:
        assert task["CapPrm"] == task["CapEff"] == mask
        assert task["CapInh"] == task["CapAmb"] == children
        if user != "another":  # which takes CAP_SETPCAP
            assert task["CapBnd"] == children
        assert task["NoNewPrivs"] == 1


def knows_files_and_kernel(folder: Path, pid: int) -> bool:
    """Whether batches know the build ID of root's program, and addresses of the kernel."""
    mappings = [m for batch in windows(folder) if pid in column(batch, "sample_pid") for m in batch.mappings]
    files = [m.file for m in mappings if m.kind == Mapping.FILE and m.build_id]
    return any("python" in file for file in files) and any(m.kind == Mapping.KERNEL for m in mappings)


def test_the_capabilities_named_to_operators_are_those_that_are_needed() -> None:
    """In the unit, on the page, and in --help."""
    import collector.commands.collect

    root = Path(__file__).parents[3]
    needed = {f"CAP_{name.upper()}" for name in DOCUMENTED.split(",")}
    unit = (root / "deploy/systemd/icestream-collector.service").read_text()
    for line in ("AmbientCapabilities", "CapabilityBoundingSet"):
        (given,) = re.findall(rf"^{line}=(.+)$", unit, re.MULTILINE)
        assert set(given.split()) - {"CAP_SETPCAP"} == needed
    assert needed <= set(re.findall(r"CAP_\w+", (root / "docs/collector.md").read_text()))
    assert needed <= set(re.findall(r"CAP_\w+", collector.commands.collect.__doc__ or ""))
