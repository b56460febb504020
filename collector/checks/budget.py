"""Whether the CPU budget suffices on this host: an estimate from one second of sampling and of process starts."""

import os
import time
from pathlib import Path

from collector.bpf.perf_event import online_cpus
from collector.bpf.sampler import Sampler, SamplerError
from collector.checks.row import Row, limited, ok
from collector.guest.budget import Limits
from collector.guest.own_cpu import enable_stats
from collector.guest.pace import limits
from collector.settings import CollectorSettings

_THING = "CPU budget"
_MEASURE_S = 1.0
_RUN_S = 10e-6  # of the eBPF program, where the host was too quiet to measure it
_ENOUGH_RUNS = 10
# As benchmarks.collector measured them on one machine:
_STEADY_PERCENT = 0.7  # of one CPU: what depends neither on samples nor on new processes
_SAMPLE_S = 31e-6  # CPU time of the collector for a sample
_PROCESS_S = 1e-3  # CPU time of the collector for a process that starts


def cpu_budget(settings: CollectorSettings) -> Row:
    """Samples for a second. Raises OSError where /proc cannot be read."""
    cpus = len(online_cpus())
    if not settings.cpu_budget:
        return ok(_THING, "no limit")
    began, started = time.monotonic(), _processes_started()
    try:
        run_s = _run_seconds(settings)
    except SamplerError:
        return limited(_THING, "not known, because the program cannot be loaded", "see the rows above")
    per_second = (_processes_started() - started) / (time.monotonic() - began)
    return row(limits(settings, cpus), cpus, run_s, per_second)


def row(bounds: Limits, cpus: int, run_s: float, processes_per_s: float) -> Row:
    """What would fit, if a sample takes `run_s` in the kernel, and so many processes start a second."""
    of_a_hertz = 100 * cpus * (run_s + _SAMPLE_S)
    of_processes = 100 * _PROCESS_S * processes_per_s
    wanted = _STEADY_PERCENT + of_processes + of_a_hertz * bounds.wanted_hz
    room = bounds.percent - _STEADY_PERCENT - of_processes
    says = (
        f"{bounds.wanted_hz} samples per second and CPU would take about {wanted:.1f} % of a CPU, while all"
        f" {cpus} CPUs are busy and {processes_per_s:.0f} processes start a second; the budget is {bounds.percent:g} %"
    )
    if wanted <= bounds.percent:
        return ok(_THING, f"{says}, enough for {int(room / of_a_hertz)}")
    samples = of_a_hertz * bounds.lowest_hz
    if samples > bounds.percent:
        reached = max(1, int(bounds.percent / of_a_hertz))
        falls = f"it would put off work, and sample {reached} times, below the lowest frequency of {bounds.lowest_hz}"
    else:
        reached = max(bounds.lowest_hz, min(bounds.wanted_hz, int((bounds.percent - _STEADY_PERCENT) / of_a_hertz)))
        falls = f"it would put off work, and sample {reached} times or more often"
    return limited(_THING, f"{says}: {falls}", "raise --cpu-budget, or lower --frequency")


def _run_seconds(settings: CollectorSettings) -> float:
    """The time of one run of the eBPF program. Raises SamplerError."""
    descriptor = enable_stats()
    sampler = Sampler(settings.frequency, settings.loader)
    try:
        sampler.start()
        time.sleep(_MEASURE_S)
        stats = sampler.stats()
    finally:
        sampler.close()
        if descriptor is not None:
            os.close(descriptor)
    if descriptor is None or stats["run_count"] < _ENOUGH_RUNS:
        return _RUN_S
    return stats["run_time_ns"] / stats["run_count"] / 1e9


def _processes_started() -> int:
    """Since the system started: processes of /proc/stat, see proc(5)."""
    for line in Path("/proc/stat").read_text().splitlines():
        if line.startswith("processes "):
            return int(line.split()[1])
    return 0
