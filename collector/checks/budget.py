"""Whether the CPU budget suffices on this host: an estimate from three seconds of samples and of processes."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from collector.bpf.perf_event import online_cpus
from collector.bpf.sampler import Sampler, SamplerError
from collector.checks.row import CheckRow, limited, ok
from collector.guest.budget import BudgetLimits
from collector.guest.own_cpu import enable_stats
from collector.guest.pace import limits
from collector.settings import CollectorSettings

_THING = "CPU budget"
_ADVICE = "raise --cpu-budget, or lower --frequency"
_MEASURE_S = 3.0  # a build does not start as many processes every second
_RUN_S = 10e-6  # of the eBPF program, where the host was too quiet to measure it
_ENOUGH_RUNS = 10
# As benchmarks.collector measured them on one machine:
_STEADY_PERCENT = 0.7  # of one CPU: what depends neither on samples nor on new processes
_SAMPLE_S = 31e-6  # CPU time of the collector for a sample
_PROCESS_S = 0.3e-3  # CPU time of the collector for a process that starts
_SHED_PROCESS_S = 0.1e-3  # the same while it puts off work
_SAMPLED_PROCESS_S = 0.45e-3  # and for one that is sampled, too


@dataclass(frozen=True)
class Seen:
    """What happened on this host."""

    run_s: float  # of one run of the eBPF program
    started: float  # processes a second
    sampled: float  # of them a second, at the wanted frequency


def cpu_budget(settings: CollectorSettings) -> CheckRow:
    """Samples for a while. Raises OSError where /proc cannot be read."""
    cpus = len(online_cpus())
    if not settings.cpu_budget:
        return ok(_THING, "no limit")
    try:
        seen = _look(settings)
    except SamplerError:
        return limited(_THING, "not known, because the program cannot be loaded", "see the rows above")
    return row(limits(settings, cpus), cpus, seen)


def row(bounds: BudgetLimits, cpus: int, seen: Seen) -> CheckRow:
    """What would fit on a host where this happens every second."""
    samples = 100 * cpus * (seen.run_s + _SAMPLE_S)  # per hertz, as the next one
    of_a_hertz = samples + 100 * _SAMPLED_PROCESS_S * seen.sampled / bounds.wanted_hz
    steady = _STEADY_PERCENT + 100 * _PROCESS_S * seen.started
    wanted = steady + of_a_hertz * bounds.wanted_hz
    says = (
        f"{bounds.wanted_hz} samples per second and CPU would take about {wanted:.1f} % of a CPU, while all"
        f" {cpus} CPUs are busy and {seen.started:.0f} processes start a second; the budget is {bounds.percent:g} %"
    )
    if wanted <= bounds.percent:
        return ok(_THING, f"{says}, enough for {int((bounds.percent - steady) / of_a_hertz)}")
    return limited(_THING, f"{says}: it would {_less(bounds, seen, samples, of_a_hertz)}", _ADVICE)


def _less(bounds: BudgetLimits, seen: Seen, samples: float, of_a_hertz: float) -> str:
    """What it would do to take less, as guest/budget.py decides."""
    if samples * bounds.lowest_hz > bounds.percent:
        reached = max(1, int(bounds.percent / samples))
        return f"put off work, and sample {reached} times, below the lowest frequency of {bounds.lowest_hz}"
    steady = _STEADY_PERCENT + 100 * _SHED_PROCESS_S * seen.started
    reached = min(bounds.wanted_hz, int(max(0.0, bounds.percent - steady) / of_a_hertz))
    if reached >= bounds.lowest_hz:
        return f"put off work, and sample {reached} times or more often"
    takes = steady + of_a_hertz * bounds.lowest_hz
    return f"put off work, sample {bounds.lowest_hz} times, and take about {takes:.1f} % all the same"


def _look(settings: CollectorSettings) -> Seen:
    """Samples for a while. Raises SamplerError."""
    descriptor = enable_stats()
    sampler = Sampler(settings.frequency, settings.loader)
    try:
        sampler.start()
        before = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        began, started = time.monotonic(), _processes_started()
        time.sleep(_MEASURE_S)
        took, started = time.monotonic() - began, _processes_started() - started
        sampled = len(np.setdiff1d(sampler.drain().pid, before))
        stats = sampler.stats()
    finally:
        sampler.close()
        if descriptor is not None:
            os.close(descriptor)
    measured = descriptor is not None and stats["run_count"] >= _ENOUGH_RUNS
    run_s = stats["run_time_ns"] / stats["run_count"] / 1e9 if measured else _RUN_S
    return Seen(run_s, started / took, sampled / took)


def _processes_started() -> int:
    """Since the system started: processes of /proc/stat, see proc(5)."""
    for line in Path("/proc/stat").read_text().splitlines():
        if line.startswith("processes "):
            return int(line.split()[1])
    return 0
