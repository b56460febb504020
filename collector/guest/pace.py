"""Measures what the collector costs, does what budget.py decides, and pauses sampling between the host's turns."""

import logging
import time
from collections.abc import Callable
from typing import Protocol

from collector import metrics
from collector.bpf.perf_event import online_cpus
from collector.guest import budget
from collector.guest.own_cpu import ProgramTime, process_seconds
from collector.guest.probabilistic import samples_at
from collector.settings import CollectorSettings, host_id

log = logging.getLogger(__name__)

_SHED = (
    "nothing is put off any more",
    "details of new processes are read later",
    "details of new processes are read later, and the eBPF programs are answered within a tenth of a second",
)
_BELOW = "; that is below the lowest frequency, because the samples alone cost too much"
_COMPLAIN_S = 600.0
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
        self._set_limits()
        self._effort = self._reached = budget.Effort(settings.frequency)
        self._cost_meter = budget.CostMeter(time.monotonic())
        self._listeners: list[Callable[[int], None]] = []
        self._sampling = True
        self._complain_at = 0.0
        self._set_metrics()

    def add_shed_listeners(self, *listeners: Callable[[int], None]) -> None:
        """Tells them from now on how much work to put off: `Effort.shed`, when it changes."""
        self._listeners += listeners

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
        self._cost_meter.begin_again()
        self._set_metrics()

    def drained(self, building_s: float, others_s: float = 0.0, events_s: float = 0.0) -> None:
        """Does more or less if the budget requires it. Call it on the sampling thread right after a drain, so that
        all samples of a window have one period. CPU time so far: `building_s` of making batches; `others_s` that other
        processes caused, and that is bounded elsewhere: doing less would not lower it; `events_s` that the kernel took
        for events of processes."""
        program_s = sum(program.seconds() for program in self._programs)
        metrics.PROGRAM_SECONDS.set_total(program_s)
        if not self._sampling:
            return
        by_rate_s = program_s + time.thread_time() + building_s
        other_s = process_seconds() - others_s + events_s + program_s - by_rate_s
        cost = self._cost_meter.cost(time.monotonic(), by_rate_s, other_s)
        if cost is not None:
            metrics.CPU_PERCENT.set(cost.percent)
            self._set_limits()
            self._effort = budget.decide(self._limits, self._effort, cost)
            self._complain(cost)
        if (self._effort.frequency_hz, self._effort.shed) != (self._reached.frequency_hz, self._reached.shed):
            self._change()

    def close(self) -> None:
        for program in self._programs:
            program.close()

    def _change(self) -> None:
        before, after = self._reached, self._effort
        if after.frequency_hz != before.frequency_hz:
            try:
                self._sampler.set_period(period_ns(after.frequency_hz))
            except OSError as error:
                log.warning("the frequency cannot be changed, trying again: %s", error)
                self._effort = before
                self._cost_meter.begin_again()
                return
        self._reached = after
        self._cost_meter.begin_again()
        self._set_metrics()
        if after.shed != before.shed:
            for listener in self._listeners:
                listener(after.shed)
            log.info("to stay within the CPU budget of %s: %s", self._budget_text(), _SHED[after.shed])
        if after.frequency_hz < before.frequency_hz:
            metrics.THROTTLED.inc()
        if after.frequency_hz != before.frequency_hz:
            bad = after.frequency_hz < min(before.frequency_hz, self._limits.lowest_hz)
            log.log(
                logging.WARNING if bad else logging.INFO,
                "now %d instead of %d samples per second and CPU, to stay within the CPU budget of %s%s",
                after.frequency_hz, before.frequency_hz, self._budget_text(), _BELOW if bad else "",
            )  # fmt: skip

    def _complain(self, cost: budget.Cost) -> None:
        """Says now and then that the cost is above the budget and nothing more can be put off."""
        exceeds = budget.at_its_lowest(self._effort)
        metrics.OVER_BUDGET.set(exceeds)
        if exceeds and time.monotonic() >= self._complain_at:
            self._complain_at = time.monotonic() + _COMPLAIN_S
            log.warning(
                "the collector takes %.1f %% of a CPU, more than its budget of %s: %.1f %% for %d samples per second"
                " and CPU, the rest for what happens on this host. Raise --cpu-budget, or lower --frequency",
                cost.percent, self._budget_text(), cost.by_rate, self._effort.frequency_hz,
            )  # fmt: skip

    def _budget_text(self) -> str:
        return f"{self._limits.percent:g} % of a CPU"

    def _set_limits(self) -> None:
        """CPUs come and go."""
        self._limits = limits(self._settings, len(online_cpus()))
        metrics.CPU_BUDGET_PERCENT.set(self._limits.percent)

    def _set_metrics(self) -> None:
        metrics.FREQUENCY.set(self._reached.frequency_hz if self._sampling else 0)
        metrics.SHED.set(self._reached.shed)


def limits(settings: CollectorSettings, cpus: int) -> budget.BudgetLimits:
    """The limits on a host with so many CPUs."""
    lowest = budget.lowest_hz(settings.frequency, settings.lowest_frequency)
    return budget.BudgetLimits(settings.frequency, settings.cpu_budget * cpus, lowest)


def period_ns(frequency_hz: int) -> int:
    """What one sample stands for at that frequency."""
    return round(1e9 / frequency_hz)
