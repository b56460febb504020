"""Which batches of one start of a collector were seen: recognises repeats, counts holes. Bounded memory."""

from dataclasses import dataclass, field

MAX_MISSING = 1000
"""Holes remembered, in case they are filled late."""
RECENT = 64
"""Sequence numbers whose parts are remembered."""


@dataclass
class Progress:
    """Sequence numbers of raw, or of activity, batches of one start of a collector."""

    first: int = 0  # the first number seen, 0: none; what lies before was never seen, and is taken as new
    high: int = 0
    missing: set[int] = field(default_factory=set)
    parts: dict[int, set[int]] = field(default_factory=dict)  # of recent numbers: parts seen
    sizes: dict[int, int] = field(default_factory=dict)  # of recent numbers: parts in all
    gaps: int = 0  # batches that were missing when a later one came

    def add(self, sequence: int, part: int, parts: int) -> bool:
        """False where this part was seen before."""
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
        """Whether all that is to come up to this number is here. Batches come in order: a hole is not waited for."""
        if self.high != sequence:
            return self.high > sequence
        return sequence == 0 or len(self.parts.get(sequence, ())) >= self.sizes.get(sequence, 0)

    def _advance(self, sequence: int) -> None:
        self.missing.discard(sequence)
        if not self.first:
            self.first = self.high = sequence
        elif sequence > self.high:
            hole = sequence - self.high - 1
            self.gaps += hole
            if hole:
                self.missing.update(range(max(self.high + 1, sequence - MAX_MISSING), sequence))
                while len(self.missing) > MAX_MISSING:
                    self.missing.discard(min(self.missing))
            self.high = sequence
