"""Events on CPUs that come and go, on this kernel."""

import errno
import os
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.bpf import perf_event
from collector.bpf.perf_event import online_cpus
from collector.bpf.sampler import Sampler
from tests.open_files import EBPF, open_files


@pytest.fixture
def online(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the kernel would say is online."""
    file = tmp_path / "online"
    monkeypatch.setattr(perf_event, "ONLINE", file)
    return file


@given(st.sets(st.integers(0, 300), min_size=1))
def test_the_kernels_list_of_cpus_is_understood(cpus: set[int]) -> None:
    text, left = [], sorted(cpus)
    while left:
        last = next(i for i, cpu in enumerate(left) if cpu + 1 not in cpus)
        text.append(f"{left[0]}-{left[last]}" if last else f"{left[0]}")
        left = left[last + 1 :]
    assert perf_event.parse_cpus(",".join(text) + "\n") == cpus


def burn(cpu: int, seconds: float) -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass
    os.sched_setaffinity(0, allowed)


@pytest.mark.ebpf
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_a_cpu_that_comes_online_is_profiled_from_the_next_drain_on_and_one_that_goes_is_let_go(online: Path) -> None:
    first, second = sorted(os.sched_getaffinity(0))[:2]
    online.write_text(f"{first}\n")
    sampler = Sampler(999)
    sampler.start()
    try:
        descriptors = open_files(*EBPF)
        burn(second, 0.2)
        before = sampler.drain()
        online.write_text(f"{first},{second}\n")
        sampler.drain()
        burn(second, 0.4)  # a host that runs other machines, too, takes the CPU away unnoticed, and samples with it
        after = sampler.drain()
        online.write_text(f"{first}\n")
        sampler.drain()
        assert open_files(*EBPF) == descriptors
    finally:
        sampler.close()
    assert np.sum(before.tid == os.getpid()) < 50
    assert np.sum(after.tid == os.getpid()) > 150


@pytest.mark.ebpf
def test_a_cpu_that_cannot_be_followed_does_not_stop_the_others(online: Path, caplog: pytest.LogCaptureFixture) -> None:
    cpus = sorted(online_cpus_really())
    online.write_text(",".join(map(str, cpus)))
    sampler = Sampler(999)
    sampler.start()
    try:
        online.write_text(",".join(map(str, [*cpus, 100_000])))
        sampler.drain()
        assert "not profiled" in caplog.text
        burn(cpus[0], 0.4)
        assert np.sum(sampler.drain().tid == os.getpid()) > 150
    finally:
        sampler.close()


def test_a_period_that_not_all_cpus_can_have_none_has(online: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    online.write_text("0-2")
    opened: dict[int, int] = {}  # file descriptor -> period

    def open_clock(program_fd: int, period_ns: int, cpu: int, pid: int = -1) -> int:
        if cpu == 1 and period_ns == 2000:
            raise OSError(errno.EMFILE, "too many open files")
        fd = os.open("/dev/null", os.O_RDONLY)
        opened[fd] = period_ns
        return fd

    monkeypatch.setattr(perf_event, "open_clock", open_clock)
    events = perf_event.PerfEvents(0, 1000)
    events.follow_cpus()
    with pytest.raises(OSError, match="too many"):
        events.set_period(2000)
    assert {cpu: opened[fd] for cpu, fd in events._events.items()} == dict.fromkeys(range(3), 1000)
    events.close()


def online_cpus_really() -> set[int]:
    return perf_event.parse_cpus(Path("/sys/devices/system/cpu/online").read_text())


def test_the_list_is_read_from_the_kernel(online: Path) -> None:
    online.write_text("0-2,5\n")
    assert online_cpus() == {0, 1, 2, 5}
