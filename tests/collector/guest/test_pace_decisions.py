"""What the pace does when a decision cannot be carried out, and when CPUs come. The sampler is made by hand."""

import errno
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from collector.guest import budget, own_cpu
from collector.guest.budget import Cost, Effort
from collector.guest.pace import Pace
from collector.settings import CollectorSettings

BUDGET = "icestream_collector_cpu_budget_percent"


class Refusing:
    """A sampler whose rate cannot be changed."""

    def set_period(self, period_ns: int) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def stats(self) -> dict[str, int]:
        return {"observed": 0, "run_time_ns": 0, "run_count": 0}

    def off_cpu_stats(self) -> dict[str, int]:
        return {}


@pytest.fixture
def pace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Pace:
    """Each measurement of its cost is much more than its budget."""
    monkeypatch.setattr(own_cpu, "enable_stats", lambda: None)
    monkeypatch.setattr(budget.CostMeter, "cost", lambda *arguments: Cost(1000.0, 0.0))
    monkeypatch.setattr("collector.guest.pace.online_cpus", lambda: {0, 1})
    settings = CollectorSettings(spool=tmp_path, frequency=49, cpu_budget=1)  # type: ignore[call-arg]
    return Pace(settings, Refusing())


def test_a_rate_that_cannot_be_changed_is_the_rate_that_further_decisions_start_from(
    pace: Pace, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(20):
        pace.drained(0.0)
        assert pace._effort.frequency_hz == 49
    assert pace._reached == Effort(49)
    assert 2 <= caplog.text.count("cannot be changed") <= 10


def test_cpus_that_come_online_raise_the_budget(pace: Pace, monkeypatch: pytest.MonkeyPatch) -> None:
    assert REGISTRY.get_sample_value(BUDGET) == 2
    monkeypatch.setattr("collector.guest.pace.online_cpus", lambda: set(range(8)))
    pace.drained(0.0)
    assert REGISTRY.get_sample_value(BUDGET) == 8


def test_what_the_kernel_takes_for_events_counts(pace: Pace, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds: list[float] = []
    monkeypatch.setattr(budget.CostMeter, "cost", lambda meter, now, by_rate_s, other_s: seconds.append(other_s))
    for events_s in (0.0, 1000.0):
        pace.drained(0.0, events_s=events_s)
    assert seconds[1] - seconds[0] == pytest.approx(1000.0, abs=100.0)
