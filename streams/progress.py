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
    parts: dict[int, set[int]] = field(default_factory=dict)  # of recent numbers: parts that came
    sizes: dict[int, int] = field(default_factory=dict)  # of recent numbers: parts in all
    gaps: int = 0  # batches that were missing when a later one came

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
                oldest = min(self.parts)
                del self.parts[oldest], self.sizes[oldest]
        if part in known:
            return False
        known.add(part)
        return True

    def complete(self, sequence: int) -> bool:
        """Returns whether all batches up to this number came. Batches come in order, so gaps count as complete."""
        if self.high != sequence:
            return self.high > sequence
        return sequence == 0 or len(self.parts.get(sequence, ())) >= self.sizes.get(sequence, 0)

    def _advance(self, sequence: int) -> None:
        self.missing.discard(sequence)
        if not self.first:
            self.first = self.high = sequence
        elif sequence > self.high:
            gap = sequence - self.high - 1
            self.gaps += gap
            if gap:
                self.missing.update(range(max(self.high + 1, sequence - MAX_MISSING), sequence))
                while len(self.missing) > MAX_MISSING:
                    self.missing.discard(min(self.missing))
            self.high = sequence
