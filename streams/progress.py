"""Notes which batches of one start of a collector came: recognises repeats and counts gaps, in bounded memory."""

from dataclasses import dataclass, field

MAX_MISSING = 1000
"""Missing sequence numbers that are remembered, as their batches may come late."""
RECENT = 64
"""Latest sequence numbers whose parts are remembered."""


@dataclass
class Progress:
    """Sequence numbers of raw, or of activity, batches of one start of a collector."""

    first: int = 0  # the first number that came, 0: none; lower numbers are taken as new
    high: int = 0
    missing: set[int] = field(default_factory=set)
    parts: dict[int, set[int]] = field(default_factory=dict)  # of numbers that came recently: parts that came
    sizes: dict[int, int] = field(default_factory=dict)  # of recent numbers: parts in all
    gaps: int = 0  # batches that were missing when a later one came
    far: int = 0  # a number far above `high`, which is believed when the numbers after it come; 0: none

    def add(self, sequence: int, part: int, parts: int) -> bool:
        """Notes a part; returns False where it came before."""
        known = self.parts.get(sequence)
        if known is None:
            if self.first and self.first <= sequence <= self.high and sequence not in self.missing:
                return False
            self._advance(sequence)
            known = self.parts[sequence] = set()
            self.sizes[sequence] = parts
            while len(self.parts) > RECENT:
                oldest = next(iter(self.parts))
                del self.parts[oldest], self.sizes[oldest]
        if part in known:
            return False
        known.add(part)
        return True

    def complete(self, sequence: int) -> bool:
        """Returns whether all batches up to this number came. Batches come in order, so gaps count as complete."""
        came = self.parts.get(sequence)
        if self.high > sequence or came is None:
            return self.high >= sequence
        return len(came) >= self.sizes[sequence]

    def _advance(self, sequence: int) -> None:
        self.missing.discard(sequence)
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
                self.missing.update(range(max(self.high + 1, sequence - MAX_MISSING), sequence))
                self.missing.discard(self.far)
                while len(self.missing) > MAX_MISSING:
                    self.missing.discard(min(self.missing))
            self.high, self.far = sequence, 0
