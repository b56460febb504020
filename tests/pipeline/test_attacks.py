"""Attacks of an unprivileged user on the collector of a host, while a new program of another user is profiled.

`make attacks` runs them. The victim keeps its samples and its names, no window is missing, and the collector stays
within twice its budget (three times in a storm of processes) and 200 MB.
"""

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from icestream.topics import DEFAULT_PROFILE_TYPE, RAW
from icestream.v1.raw_pb2 import RawBatch
from tests.pipeline.attackers import ATTACKS
from tests.pipeline.reading import messages
from tests.pipeline.running import Pipeline, between
from tests.ports import free_port

pytestmark = [pytest.mark.pipeline, pytest.mark.ebpf, pytest.mark.soak, pytest.mark.alone]

ATTACKER, VICTIM = 64321, 64322
"""User IDs that nobody has."""
_WARM_UP_S = 25.0
"""The collector looks at all programs of the machine when it starts."""
_ATTACK_S = 20.0
_WINDOW_S = 1
_NAMES_S = 60.0
"""Names come on request, after the samples."""
_PYTHON = "/usr/bin/python3"
_MOST_BYTES = 200_000_000
_STORM_BUDGETS = 3
"""In a storm nearly each of the 198 samples a second is of a new process. The collector lowers its frequency after a
minute, which is longer than the attack lasts."""


@dataclass(frozen=True)
class Usage:
    cpu_s: float
    rss_bytes: int


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user can enter."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="icestream-attack-") as path:
        os.chmod(path, 0o755)
        yield Path(path)


@contextmanager
def attacking(attack: str, folder: Path, activity_socket: Path) -> Iterator[None]:
    own = folder / "attacker"
    own.mkdir()
    os.chown(own, ATTACKER, ATTACKER)
    fuse = own / "fuse"
    os.mknod(fuse, stat.S_IFCHR, os.makedev(10, 229))
    os.chmod(fuse, 0o666)  # as /dev/fuse is on common distributions
    program = folder / "attackers.py"
    shutil.copyfile(Path(__file__).with_name("attackers.py"), program)
    command = [_PYTHON, str(program), attack, str(own), str(activity_socket)]
    attackers = [
        subprocess.Popen(command, user=ATTACKER, group=ATTACKER, extra_groups=[], start_new_session=True)
        for _ in range(2 if attack in ("storm", "activity") else 1)
    ]
    try:
        yield
        assert all(attacker.poll() is None for attacker in attackers), "the attack ended by itself"
    finally:
        for attacker in attackers:
            os.killpg(attacker.pid, signal.SIGKILL)
            attacker.wait()
            Path(f"/tmp/perf-{attacker.pid}.map").unlink(missing_ok=True)


@contextmanager
def victim(folder: Path) -> Iterator[Path]:
    """A program of another user that starts now."""
    program = folder / f"victim-{os.getpid()}-{time.time_ns()}"
    source = Path(__file__).with_name("known.c")
    subprocess.run(["gcc", "-O0", "-rdynamic", "-Wl,--build-id=uuid", "-o", program, source], check=True)
    process = subprocess.Popen([program], user=VICTIM, group=VICTIM, extra_groups=[])
    try:
        yield program
    finally:
        process.kill()
        process.wait()


def usage(pid: int, metrics: str) -> Usage:
    """What the collector has used, with its children."""
    with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=10) as answer:
        (cpu_s,) = re.findall(r"^icestream_collector_cpu_seconds_total (\S+)$", answer.read().decode(), re.MULTILINE)
    (rss_kb,) = re.findall(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return Usage(float(cpu_s), int(rss_kb) * 1024)


@pytest.mark.parametrize("attack", sorted(ATTACKS))
def test_an_unprivileged_user_harms_nobody_else(attack: str, embedded_pipeline: Pipeline, folder: Path) -> None:
    pipeline, metrics = embedded_pipeline, f"127.0.0.1:{free_port()}"
    cpus = os.cpu_count() or 1
    budget_share = 0.05  # of the host: symbols of everything are new, and only the attack is measured
    pipeline.start(
        "collect", "--frequency", "99", "--interval", str(_WINDOW_S), "--cpu-budget", str(100 * budget_share),
        "--lowest-frequency", "49", "--metrics-listen", metrics, "--activity-socket", str(folder / "activity.sock"),
    )  # fmt: skip
    pipeline.wait(lambda: messages(pipeline.settings, RAW), bool)
    time.sleep(_WARM_UP_S)
    before, begun_ns = usage(pipeline.pid("collect"), metrics), time.time_ns()
    with attacking(attack, folder, folder / "activity.sock"):
        time.sleep(_ATTACK_S / 4)
        with victim(folder) as program:
            time.sleep(_ATTACK_S * 3 / 4)
            cpu_s = cpu_of(program)
        ended_ns, after = time.time_ns(), usage(pipeline.pid("collect"), metrics)
    pipeline.settle_after(ended_ns)
    check_windows(pipeline, begun_ns, ended_ns)
    selector = f'{{executable="{program.name}"}}'

    def named_and_total() -> tuple[int, int]:
        query = {"format": "collapsed", "selector": selector} | between(begun_ns, ended_ns + 10**10)
        lines = [line.rpartition(" ") for line in pipeline.get("/api/v1/merge", **query).splitlines()]
        named = sum(int(value) for stack, _, value in lines if re.search(r";(three_quarters|one_quarter)\b", stack))
        return named, sum(int(value) for *_, value in lines)

    named, total = pipeline.wait(named_and_total, lambda found: found[0] > 0.99 * found[1], _NAMES_S)
    used = Usage((after.cpu_s - before.cpu_s) / ((ended_ns - begun_ns) / 1e9), after.rss_bytes)
    print(
        f"{attack}: victim {total / 1e9:.2f} of {cpu_s:.2f} s, {named / max(total, 1):.1%} with names; "
        f"collector {used.cpu_s:.1%} of a CPU, {used.rss_bytes / 1e6:.0f} MB",
        file=sys.stderr,
    )
    assert total / 1e9 == pytest.approx(cpu_s, rel=0.15)  # 5 standard deviations of samples
    assert used.cpu_s < (_STORM_BUDGETS if attack == "storm" else 2) * budget_share * cpus
    assert used.rss_bytes < _MOST_BYTES


def cpu_of(program: Path) -> float:
    """Seconds of CPU of the process that runs a program."""
    (process,) = (exe.parent for exe in Path("/proc").glob("[0-9]*/exe") if reads(exe) == str(program))
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def reads(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:
        return ""


def check_windows(pipeline: Pipeline, begun_ns: int, ended_ns: int) -> None:
    """No window of the time is missing, and nothing was lost in one."""
    batches = [RawBatch.FromString(message.value() or b"") for message in messages(pipeline.settings, RAW)]
    batches = [
        one
        for one in batches
        if begun_ns <= one.start_unix_nano <= ended_ns and one.profile_type == DEFAULT_PROFILE_TYPE
    ]
    starts = sorted({one.start_unix_nano for one in batches})
    wanted = (ended_ns - begun_ns) / 1e9 / _WINDOW_S
    assert len(starts) > 0.99 * wanted - 2, f"{len(starts)} of {wanted:.0f} windows"
    assert sum(one.lost_samples + one.dropped_samples for one in batches) == 0
