"""pprof profiles that are made up: by a seed of hypothesis, or by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from icestream.pprof.profile_pb2 import Profile

START_UNIX_NANO = 1_770_000_000 * 10**9
BUILD_ID = "0123456789abcdef0123"


@dataclass
class Maker:
    """Fills a profile."""

    profile: Profile
    strings: dict[str, int]

    def string(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings))

    def done(self) -> Profile:
        del self.profile.string_table[:]
        self.profile.string_table.extend(self.strings)
        return self.profile


def maker(types: Sequence[tuple[str, str]], period_type: tuple[str, str], period: int = 10_000_000) -> Maker:
    """A profile of ten seconds without samples."""
    made = Maker(Profile(time_nanos=START_UNIX_NANO, duration_nanos=10 * 10**9, period=period), {"": 0})
    for kind, unit in types:
        made.profile.sample_type.add(type=made.string(kind), unit=made.string(unit))
    made.profile.period_type.type, made.profile.period_type.unit = map(made.string, period_type)
    return made


def simple(
    stacks: Mapping[tuple[str, ...], Sequence[int]],
    types: Sequence[tuple[str, str]] = (("samples", "count"), ("cpu", "nanoseconds")),
    period_type: tuple[str, str] = ("cpu", "nanoseconds"),
    labels: Mapping[str, str] | None = None,
) -> Profile:
    """Stacks of functions, root first, with their values."""
    made = maker(types, period_type)
    ids: dict[str, int] = {}
    for stack, values in stacks.items():
        for name in stack:
            if name not in ids:
                ids[name] = len(ids) + 1
                made.profile.function.add(id=ids[name], name=made.string(name), filename=made.string("app.py"))
                made.profile.location.add(id=ids[name]).line.add(function_id=ids[name], line=7)
        sample = made.profile.sample.add(location_id=[ids[name] for name in reversed(stack)], value=values)
        for key, value in (labels or {}).items():
            sample.label.add(key=made.string(key), str=made.string(value))
    return made.done()


TYPES = (
    ([("samples", "count"), ("cpu", "nanoseconds")], ("cpu", "nanoseconds")),
    ([("wall", "nanoseconds")], ("wall", "nanoseconds")),
    (
        [("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "bytes")],
        ("space", "bytes"),
    ),
    ([("contentions", "count"), ("delay", "nanoseconds")], ("contentions", "count")),
    ([("goroutine", "count")], ("goroutine", "count")),
)
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=12)
FUNCTIONS = st.tuples(NAMES, NAMES, st.integers(0, 5000))  # name, file, first line
LABELS = st.dictionaries(st.sampled_from(["region", "tier", "endpoint"]), st.sampled_from(["a", "b", "c"]), max_size=2)


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    """Any sample types, inlined functions, files with and without build IDs, code without names, labels."""
    types, period_type = draw(st.sampled_from(TYPES))
    made = maker(types, period_type, period=draw(st.integers(1, 10**9)))
    profile = made.profile
    mapped = [
        ("/app/server", BUILD_ID, 0x400000),
        ("/lib/libz.so", "ff" * 10, 0x7F00_0000_0000),
        ("/lib/none.so", "", 0),
    ]
    for number, (file, build_id, start) in enumerate(mapped, 1):
        profile.mapping.add(
            id=number, memory_start=start, memory_limit=start + 2**24, filename=made.string(file),
            build_id=made.string(build_id),
        )  # fmt: skip
    functions = draw(st.lists(FUNCTIONS, min_size=1, max_size=8, unique_by=lambda function: function[:2]))
    for number, (name, file, start_line) in enumerate(functions, 1):
        profile.function.add(id=number, name=made.string(name), filename=made.string(file), start_line=start_line)
    for number in range(1, draw(st.integers(2, 10))):
        mapping = draw(st.integers(0, len(mapped)))
        start = mapped[mapping - 1][2] if mapping else 0
        address = start + draw(st.integers(0x1000, 2**20)) if mapping else 0
        location = profile.location.add(id=number * 7, mapping_id=mapping, address=address)
        most = 3 if mapping else 2
        for _ in range(draw(st.integers(0 if mapping in (1, 2) else 1, most))):
            location.line.add(function_id=draw(st.integers(1, len(functions))), line=draw(st.integers(0, 9999)))
    ids = [location.id for location in profile.location]
    for _ in range(draw(st.integers(1, 12))):
        stack = draw(st.lists(st.sampled_from(ids), min_size=1, max_size=6))
        sample = profile.sample.add(
            location_id=stack, value=[draw(st.integers(1, 10**9 if unit != "count" else 1000)) for _, unit in types]
        )
        for key, value in draw(LABELS).items():
            sample.label.add(key=made.string(key), str=made.string(value))
    return made.done()
