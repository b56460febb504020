"""The rate changes while a real program is sampled, and the values stay right."""

import subprocess
import threading
import time
from pathlib import Path

import pytest

from collector.agent import load, make_profiler
from collector.bpf.sampler import Sampler
from collector.delivery.window_buffer import MemoryBuffer
from collector.guest import budget
from collector.guest.own_cpu import ProgramTime
from collector.guest.pace import Pace
from collector.processes.mapped_files import FileCache
from collector.settings import CollectorSettings
from icestream.columns.packed import column
from icestream.topics import DEFAULT_PROFILE_TYPE, RAW
from icestream.v1.raw_pb2 import RawBatch
from tests.not_clocked import NotClocked

pytestmark = pytest.mark.ebpf
PROGRAMS = Path(__file__).parents[1] / "programs"
FREQUENCY = 1999


def settings(folder: Path, **more: float) -> CollectorSettings:
    return CollectorSettings(  # type: ignore[call-arg]
        spool=folder / "spool", activity_socket=folder / "activity.sock", interval=0.2, settle=0, **more
    )


@pytest.mark.alone
def test_over_its_budget_the_rate_falls_and_samples_times_period_is_still_the_cpu_time(
    busy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(budget, "MEASUREMENT_S", 0.3)
    monkeypatch.setattr(budget, "WARM_UP_S", 2.0)
    monkeypatch.setattr(budget, "MIN_FREQUENCY_HZ", 499)  # so that there are samples enough to compare
    buffer = MemoryBuffer()
    messages = buffer.messages
    stop = threading.Event()
    limited = settings(tmp_path, frequency=FREQUENCY, cpu_budget=0.01)
    profiler = make_profiler(limited, load(limited), FileCache(), buffer)
    running = threading.Thread(target=profiler.run, args=(stop,))
    running.start()
    while not messages:  # it learns first what runs here
        time.sleep(0.05)
    not_clocked = NotClocked()
    with subprocess.Popen([busy, "1", "3500", "3"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        output = program.communicate(b"\n")[0]
    most = 1.07 + not_clocked.share()
    stop.set()
    running.join()
    clock_ns = int(output.split()[-1])
    batches = [RawBatch.FromString(message.value) for message in messages if message.topic == RAW]
    batches = [batch for batch in batches if batch.profile_type == DEFAULT_PROFILE_TYPE]
    periods = [batch.period for batch in batches]
    assert periods == sorted(periods)
    assert periods[0] == round(1e9 / FREQUENCY)
    assert len(set(periods)) >= 2
    sampled_ns = [int((column(batch, "sample_pid") == program.pid).sum()) * batch.period for batch in batches]
    assert 0.93 < sum(sampled_ns) / clock_ns < most
    assert "below the lowest frequency, because the samples alone cost too much" in caplog.text


def test_while_other_hosts_sample_this_one_takes_no_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = True
    monkeypatch.setattr("collector.guest.pace.samples_at", lambda *arguments: chosen)
    sampler = Sampler(999)
    sampler.start()
    pace = Pace(settings(tmp_path), sampler)

    def observed_in(seconds: float) -> int:
        before = sampler.stats()["observed"]
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            sampler.poll()
        return sampler.stats()["observed"] - before

    assert observed_in(0.3) > 0
    chosen = False
    pace.take_turns()
    assert observed_in(0.3) == 0
    sampler.drain()
    pace.drained(0.0)
    chosen = True
    pace.take_turns()
    assert observed_in(0.3) > 0
    pace.close()
    sampler.close()


def test_the_programs_time_is_estimated_from_its_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel measures for a moment only; after it, each run counts as the average of those that were measured."""
    sampler = Sampler(1999)
    sampler.start()
    stats = [sampler.stats()]

    def observed() -> dict[str, int]:
        stats.append(sampler.stats())
        return stats[-1]

    def work(seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            sampler.poll()

    program = ProgramTime(observed)
    _, start = stats
    work(0.5)
    before = program.seconds()
    program.close()
    # Another collector may keep the kernel measuring; this one estimates all the same.
    monkeypatch.setattr("collector.guest.own_cpu._ENOUGH_RUNS", 1 << 60)
    measured = stats[-1]
    runs = measured["run_count"] - start["run_count"]
    assert runs > 50
    average_ns = (measured["run_time_ns"] - start["run_time_ns"]) / runs
    work(0.5)
    estimate_ns = (program.seconds() - before) * 1e9
    samples = stats[-1]["observed"] - measured["observed"]
    assert samples > 0
    sampler.close()
    assert estimate_ns == pytest.approx(samples * average_ns, rel=1e-6)
