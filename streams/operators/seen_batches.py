"""Notes which batches of one run of a collector came: recognises repeats and counts gaps, in bounded memory."""

from dataclasses import dataclass, field

MAX_MISSING = 1000
"""Missing sequence numbers that are remembered, as their batches may come late."""
RECENT = 64
"""Latest sequence numbers whose parts are remembered."""
_OVERHEAD_BYTES, _MISSING_BYTES, _RECENT_BYTES = 600, 100, 80


@dataclass
class SeenBatches:
    """Sequence numbers of raw, or of activity, batches of one run of a collector."""

    first: int = 0  # the first number that came, 0: none; lower numbers are taken as new
    high: int = 0
    missing: dict[int, None] = field(default_factory=dict)  # in ascending order
    parts: dict[int, int] = field(default_factory=dict)  # of numbers that came recently: a bit for each part that came
    sizes: dict[int, int] = field(default_factory=dict)  # of recent numbers: parts in all
    part_bits: int = 0  # of all of `parts`
    gaps: int = 0  # batches that were missing when a later one came
    far: int = 0  # a number far above `high`, which is believed when the numbers after it come; 0: none

    def add(self, sequence: int, part: int, parts: int) -> bool:
        """Notes a part; returns False where it came before."""
        if sequence not in self.parts:
            if self.first and self.first <= sequence <= self.high and sequence not in self.missing:
                return False
            self._advance(sequence)
            self.parts[sequence], self.sizes[sequence] = 0, parts
            while len(self.parts) > RECENT:
                oldest = next(iter(self.parts))
                self.part_bits -= self.parts.pop(oldest).bit_length()
                del self.sizes[oldest]
        came = self.parts[sequence]
        if came >> part & 1:
            return False
        self.parts[sequence] = came | 1 << part
        self.part_bits += self.parts[sequence].bit_length() - came.bit_length()
        return True

    @property
    def bytes(self) -> int:
        """About what this takes."""
        entries = _MISSING_BYTES * len(self.missing) + _RECENT_BYTES * len(self.parts)
        return _OVERHEAD_BYTES + entries + self.part_bits // 8

    def complete(self, sequence: int) -> bool:
        """Returns whether all batches up to this number came. Batches come in order, so gaps count as complete."""
        came = self.parts.get(sequence)
        if self.high > sequence or came is None:
            return self.high >= sequence
        return came.bit_count() >= self.sizes[sequence]

    def _advance(self, sequence: int) -> None:
        self.missing.pop(sequence, None)
        if not self.first:
            self.first = self.high = sequence
        elif sequence > self.high + MAX_MISSING and not 0 < sequence - self.far <= MAX_MISSING:
            self.far = sequence
        elif sequence > self.high:
            if sequence > self.high + MAX_MISSING:
                # Lower numbers are taken as new from here on, so that no absurd number ever silences a collector.
                self.first = self.far
            gap = sequence - self.high - 1 - (self.high < self.far < sequence)
            self.gaps += gap
            if gap:
                self.missing |= dict.fromkeys(range(max(self.high + 1, sequence - MAX_MISSING), sequence))
                self.missing.pop(self.far, None)
                while len(self.missing) > MAX_MISSING:
                    del self.missing[next(iter(self.missing))]
            self.high, self.far = sequence, 0
