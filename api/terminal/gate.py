"""The gate for CI: whether functions, or the whole, use more CPU than in a baseline, as far as the samples tell.

docs/ci.md says what is compared. All percentages are of one total: each side's own (`share`), or the baseline's CPU per
time (`time`).
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from api.statistics.counts import mean_count, ratio, share
from api.statistics.estimates import CONFIDENCE, Estimate, deviations, difference
from icestream.cli import CommandError
from icestream.times import parse_unix_nano

EXIT_CODE = 3
"""The exit code of a comparison that fails; 1 means that nothing could be compared."""

Compare = Literal["share", "time"]
_MEASURES = ("flat", "cumulative")
_NOT_CODE = "icestream"
"""The kind of frames that stand for what is missing, such as stacks that have not arrived yet."""


@dataclass(frozen=True)
class Change:
    """A function whose estimate grew by more than the limit: `over` if the confidence interval says so, too."""

    name: str
    module: str
    file: str
    measure: str  # flat or cumulative
    before_percent: float
    now_percent: float
    change_percent: Estimate
    over: bool


@dataclass(frozen=True)
class Gate:
    """The outcome of a comparison."""

    compare: Compare
    limit_percent: float
    comparisons: int
    now_cpus: float
    before_cpus: float
    whole_percent: Estimate  # by how much the CPU per time has changed
    whole_over: bool  # with `share`, never: more work is no failure there
    changes: list[Change]  # largest first

    @property
    def failed(self) -> bool:
        return self.whole_over or any(change.over for change in self.changes)

    def as_json(self) -> dict[str, Any]:
        return {"failed": self.failed, "confidence": CONFIDENCE, **asdict(self)}


def check_diff(diff: dict[str, Any], limit_percent: float, compare: Compare) -> Gate:
    """Checks the API's answer to a diff. Raises CommandError if it cannot be checked."""
    _refuse_unequal_samples(diff)
    before, now = _Side(diff, "baseline_"), _Side(diff, "")
    per_percent = _per_percent(before, now, compare)
    values = diff["functions"]
    rows = [
        (row, measure)
        for measure in _MEASURES
        for row, value in enumerate(values[measure])
        if diff["kinds"][values["kind"][row]] != _NOT_CODE
        and value / now.total * per_percent[1] > limit_percent
        and (measure == "flat" or _calls_others(values, row))
    ]
    comparisons = len(rows) + 1
    z = deviations(CONFIDENCE, comparisons)

    def estimate(side: _Side, percent: float, row: int, measure: str) -> Estimate:
        count = side.samples * values[side.prefix + measure][row] / side.total
        of_all = share(count, side.samples, z) if compare == "share" else mean_count(count, z).times(1 / side.samples)
        return of_all.times(percent)

    changes = []
    for row, measure in rows:
        was, is_now = (estimate(s, p, row, measure) for s, p in zip((before, now), per_percent, strict=True))
        change = difference(is_now, was)
        if change.value > limit_percent:
            name, module, file = (diff["strings"][values[text][row]] for text in ("name", "module", "file"))
            over = change.low > limit_percent
            changes.append(Change(name, module, file, measure, was.value, is_now.value, change, over))
    growth = ratio(now.samples, before.samples, z).times(now.cpus / before.cpus / (now.samples / before.samples))
    whole = Estimate(*(100 * (factor - 1) for factor in (growth.value, growth.low, growth.high)))
    return Gate(
        compare, limit_percent, comparisons, now.cpus, before.cpus, whole,
        whole_over=compare == "time" and whole.low > limit_percent,
        changes=sorted(changes, key=lambda change: (-change.over, -change.change_percent.value, change.measure)),
    )  # fmt: skip


class _Side:
    """One side of a diff. Raises CommandError if it is empty."""

    def __init__(self, diff: dict[str, Any], prefix: str) -> None:
        self.prefix = prefix
        self.total: int = diff[f"{prefix}total"]
        self.samples: int = diff[f"{prefix}samples"]
        start, end = (parse_unix_nano(diff[f"{prefix}{name}"], 0) for name in ("start", "end"))
        self.cpus = self.total / (end - start)
        if self.total <= 0 or self.samples <= 0:
            what = "the baseline" if prefix else "the profile"
            raise CommandError(f"there are no samples of {what}: {diff[f'{prefix}selector']}; nothing was compared")


def _calls_others(functions: dict[str, list[int]], row: int) -> bool:
    """Whether the cumulative values of a function say more than its flat ones."""
    return any(functions[f"{side}flat"][row] != functions[f"{side}cumulative"][row] for side in ("", "baseline_"))


def _per_percent(before: _Side, now: _Side, compare: Compare) -> tuple[float, float]:
    """What all samples of each side are, in percent."""
    return (100.0, 100.0) if compare == "share" else (100.0, 100.0 * now.cpus / before.cpus)


def _refuse_unequal_samples(diff: dict[str, Any]) -> None:
    sample_type = diff["profile_type"].split(":")[1]
    if sample_type != "cpu":
        raise CommandError(
            f"--fail-over compares samples of CPU, and these are of {sample_type}: one of them may stand for a"
            " millisecond or a minute, so their number does not say how sure a change is"
        )
