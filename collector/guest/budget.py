"""How often to sample, so that the collector stays within its share of a CPU.

Every `WINDOW_S` seconds its CPU time is compared with the budget. Two windows in a row above the budget halve the
frequency. Two in a row that leave room for the next step raise it by a quarter. So a burst of work that has nothing to
do with sampling (symbols for a request, the first look at every process) changes nothing, and a steady load leads to a
steady frequency.
"""

import math

WINDOW_S = 30.0
WARM_UP_S = 60.0
"""After the start, when the collector reads once what every process maps."""

MIN_FREQUENCY_HZ = 1
IN_A_ROW = 2
_ROOM = 0.9  # part of the budget that a higher frequency may cost


class Budget:
    """Decides how often to sample: `frequency_hz`. Knows neither clocks nor kernels."""

    def __init__(self, frequency_hz: int, percent: float) -> None:
        """`frequency_hz` is never exceeded. `percent` is of one CPU; 0 means no limit."""
        self.frequency_hz = frequency_hz
        self._wanted = frequency_hz
        self._percent = percent
        self._over = self._under = 0

    def update(self, percent: float) -> int:
        """Takes the cost of a window that was sampled at `frequency_hz`; returns the frequency from now on."""
        if self._percent <= 0:
            return self.frequency_hz
        higher = min(self._wanted, max(math.floor(self.frequency_hz * 1.25), self.frequency_hz + 1))
        # An upper bound: part of the cost does not depend on the frequency.
        at_most = percent * higher / self.frequency_hz
        self._over = self._over + 1 if percent > self._percent else 0
        self._under = self._under + 1 if at_most <= _ROOM * self._percent else 0
        if self._over >= IN_A_ROW and self.frequency_hz > MIN_FREQUENCY_HZ:
            self._change(max(MIN_FREQUENCY_HZ, self.frequency_hz // 2))
        elif self._under >= IN_A_ROW and higher > self.frequency_hz:
            self._change(higher)
        return self.frequency_hz

    def _change(self, frequency_hz: int) -> None:
        self.frequency_hz = frequency_hz
        self._over = self._under = 0


class Windows:
    """Makes readings of CPU time at any moment into the cost of windows of at least `WINDOW_S`."""

    def __init__(self, now: float) -> None:
        """`now`: time.monotonic()."""
        self._not_before = now + WARM_UP_S
        self._began: tuple[float, float] | None = None

    def cost(self, now: float, cpu_s: float) -> float | None:
        """The cost in per cent of one CPU if a window ends now, else None. `cpu_s` is the CPU time since the start."""
        if now < self._not_before:
            return None
        if self._began is None:
            self._began = now, cpu_s
            return None
        took = now - self._began[0]
        if took < WINDOW_S:
            return None
        used = cpu_s - self._began[1]
        self._began = now, cpu_s
        return max(0.0, 100 * used / took)

    def begin_again(self) -> None:
        """The next window begins at the next reading, because the conditions have changed."""
        self._began = None
