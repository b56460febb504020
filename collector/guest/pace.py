"""Decides how often this host samples, and whether it is its turn, so that the collector's cost stays in bounds."""

import logging
import time
from typing import Protocol

from collector import metrics
from collector.guest import budget
from collector.guest.own_cpu import ProgramTime, process_seconds
from collector.guest.probabilistic import samples_at
from collector.settings import CollectorSettings, host_id

log = logging.getLogger(__name__)

_SWITCH_NS, _WAIT_NS = 100.0, 5000.0  # of the program at a switch of threads, and more at one that is followed


class Sampling(Protocol):
    """What `Pace` needs of the sampler."""

    def set_period(self, period_ns: int) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def stats(self) -> dict[str, int]: ...

    def off_cpu_stats(self) -> dict[str, int]: ...


class Pace:
    """Changes the rate of a sampler that was just started. For one thread. Make it before capabilities are dropped."""

    def __init__(self, settings: CollectorSettings, sampler: Sampling) -> None:
        self._settings = settings
        self._host_id = host_id(settings)
        self._sampler = sampler
        self._programs = [ProgramTime(sampler.stats)]
        if sampler.off_cpu_stats():
            self._programs.append(ProgramTime(sampler.off_cpu_stats, _SWITCH_NS + settings.off_cpu * _WAIT_NS))
        self._budget = budget.Budget(settings.frequency, settings.cpu_budget)
        self._windows = budget.Windows(time.monotonic())
        self._frequency_hz = settings.frequency
        self._sampling = True
        self._set_metric()

    def take_turns(self) -> None:
        """Pauses or resumes when turns change. Call it about every second."""
        settings = self._settings
        samples = samples_at(time.time(), self._host_id, settings.share, settings.share_interval)
        if samples == self._sampling:
            return
        try:
            self._sampler.resume() if samples else self._sampler.pause()
        except OSError as error:
            log.warning("sampling cannot be paused or resumed, trying again: %s", error)
            return
        self._sampling = samples
        self._windows.begin_again()
        self._set_metric()

    def drained(self, others_s: float = 0.0) -> None:
        """Changes the frequency if the budget requires it. Call it right after a drain, so that a window has one
        period. `others_s`: CPU time so far that other processes caused, and that is bounded elsewhere; sampling less
        would not lower it."""
        program_s = sum(program.seconds() for program in self._programs)
        metrics.PROGRAM_SECONDS.set_total(program_s)
        if not self._sampling:
            return
        percent = self._windows.cost(time.monotonic(), process_seconds() - others_s + program_s)
        if percent is not None:
            metrics.CPU_PERCENT.set(percent)
            self._budget.update(percent)
        if self._budget.frequency_hz != self._frequency_hz:
            self._change()

    def close(self) -> None:
        for program in self._programs:
            program.close()

    def _change(self) -> None:
        before, after = self._frequency_hz, self._budget.frequency_hz
        try:
            self._sampler.set_period(period_ns(after))
        except OSError as error:
            log.warning("the frequency cannot be changed, trying again: %s", error)
            return
        self._frequency_hz = after
        self._windows.begin_again()
        self._set_metric()
        if after < before:
            metrics.THROTTLED.inc()
        log.info(
            "now %d instead of %d samples per second and CPU, to stay within a budget of %g %% of a CPU",
            after, before, self._settings.cpu_budget,
        )  # fmt: skip

    def _set_metric(self) -> None:
        metrics.FREQUENCY.set(self._frequency_hz if self._sampling else 0)


def period_ns(frequency_hz: int) -> int:
    """What one sample stands for at that frequency."""
    return round(1e9 / frequency_hz)
