"""Random batches."""

from hypothesis import strategies as st

from tests.data.handwritten import Interval, Raw, Sample
from tests.data.messages import context

LOCATIONS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**64 - 1)), min_size=1, max_size=12)
TIMES_US = st.integers(0, 4_999_999)
TIDS = st.integers(1, 4)


@st.composite
def raws(draw: st.DrawFn, sequence: int = 1, activity_sequence: int = 0, host: str = "host") -> Raw:
    """A RawBatch of up to 30 samples in 8 stacks."""
    locations = draw(LOCATIONS)
    frames = st.lists(st.integers(0, len(locations) - 1), max_size=9)
    stacks = draw(st.lists(frames, min_size=1, max_size=8))
    contexts = [context(i + 1) for i in range(draw(st.integers(0, 3)))]
    samples = st.builds(
        Sample,
        time_us=TIMES_US,
        stack=st.integers(0, len(stacks) - 1),
        tid=TIDS,
        series=st.integers(0, 1),
        context=st.integers(0, len(contexts)),
        count=st.integers(0, 5),
        value=st.integers(-(10**12), 10**12),
    )
    return Raw(
        samples=draw(st.lists(samples, max_size=30)),
        stacks=stacks,
        locations=locations,
        series=({"service": "a"}, {"service": "b", "pod": "x"}),
        contexts=contexts,
        sequence=sequence,
        activity_sequence=activity_sequence,
        host=host,
    )


@st.composite
def intervals(draw: st.DrawFn, disjoint: bool = True) -> list[Interval]:
    """Intervals of up to 4 threads, each in a context of its own, in no order; disjoint within a thread, or not."""
    found = []
    number = 100
    for tid in range(1, 5):
        edges = draw(st.lists(TIMES_US, max_size=10, unique=True))
        if disjoint:
            edges.sort()
        for start, end in zip(edges[::2], edges[1::2], strict=False):
            number += 1
            found.append(Interval(tid, min(start, end), max(start, end), context(number)))
    return draw(st.permutations(found))
