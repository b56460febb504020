"""CPU time that samples count and the clocks of threads leave out: interrupts, and what a hypervisor takes away."""

from pathlib import Path

import numpy as np


class NotClocked:
    """Measures from its construction on."""

    def __init__(self) -> None:
        self._before = _ticks()

    def share(self) -> float:
        """Returns its share of the time in which CPUs were busy; on which CPU that was is not known."""
        _, _, _, idle, iowait, *not_clocked = ticks = _ticks() - self._before
        return float(sum(not_clocked) / max(sum(ticks) - idle - iowait, 1))


def _ticks() -> np.ndarray:
    """All CPUs, since the host started: user, nice, system, idle, iowait, irq, softirq, steal (proc(5), /proc/stat)."""
    return np.array(Path("/proc/stat").read_text().split(maxsplit=9)[1:9], int)
