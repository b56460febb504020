"""What a comparison says, in a sentence: the API, the terminal, the page and the gate show this one."""

from collections.abc import Sequence

from api.comparison.cure import to_be_certain, to_compare, to_find_functions
from api.comparison.functions import Spread
from api.comparison.operations import ChangeStatus, OperationChange
from api.queries.selection.selector import Matcher
from api.statistics.means import MIN_COUNT

MINUS = "\N{MINUS SIGN}"
_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns"))
_NEARLY_ALL = (0.8, 1.25)
"""Which parts of a change nearly all of it are: what else there is may go the other way."""
_NAMED = 3


def summarise(
    changes: Sequence[OperationChange],
    spread: Spread | None,
    now: Sequence[Matcher] = (),
    before: Sequence[Matcher] = (),
) -> str:
    """What all operations say: the first one's sentence, or that no change is certain. `spread`: of the first one.

    Names both sides if their matchers, `now` and `before`, differ in the value of one label.
    """
    counts = {status: sum(1 for each in changes if each.status is status) for status in ChangeStatus}
    if not changes:
        return "There were no requests on either side."
    sides = _sides(now, before)
    if counts[ChangeStatus.CHANGED] or len(changes) == 1:
        more = counts[ChangeStatus.CHANGED] - 1
        others = f" {_count(more, 'other operation')} changed, too." if more > 0 else ""
        return f"{sides}{describe(changes[0], spread)}.{others}"
    said = {
        ChangeStatus.SAME: "as before",
        ChangeStatus.UNSURE: "not certain",
        ChangeStatus.NEW: "new",
        ChangeStatus.GONE: "gone",
    }
    rest = ", ".join(f"{counts[status]} {text}" for status, text in said.items() if counts[status])
    none = "no certain change" if sides else "No certain change"
    return f"{sides}{none} of CPU a request in {_count(len(changes), 'operation')}: {rest}."


def describe(change: OperationChange, spread: Spread | None) -> str:
    """What one operation says, without a full stop."""
    return f"{change.operation}: {_cpu(change)}{_functions(change, spread)}{_beside(change)}"


def _sides(now: Sequence[Matcher], before: Sequence[Matcher]) -> str:
    """ "2.4 against 2.3: ", or nothing where the sides do not differ in exactly one label."""
    differing = [set(now) - set(before), set(before) - set(now)]
    if [len(each) for each in differing] != [1, 1]:
        return ""
    (of_now,), (of_before,) = differing
    if of_now.label != of_before.label or {of_now.operator, of_before.operator} != {"="}:
        return ""
    return " against ".join(each.value or f"no {each.label}" for each in (of_now, of_before)) + ": "


def _cpu(change: OperationChange) -> str:
    now, before, grown = change.cpu.now, change.cpu.before, change.cpu.growth
    what = "CPU a request" if change.by_clock else "sampled CPU a request"
    if now is None or before is None:
        return f"{change.status.value}, {_amounts(*(each.value for each in (before, now) if each))} {what}"
    amounts = _amounts(before.value, now.value)
    if grown is None:
        counts = [row["requests"] if row else 0 for row in (change.before, change.now)]
        if min(counts) < MIN_COUNT:
            return f"{counts[0]} and {counts[1]} requests are too few to tell ({amounts} {what}){to_compare(change)}"
        return f"its samples are too few to tell ({amounts} {what}){to_compare(change)}"
    within = f"({amounts}, {_percent(grown.low)} to {_percent(grown.high)} %)"
    if change.status is ChangeStatus.CHANGED:
        return f"{_percent(grown.value)} % {what} {within}"
    if change.status is ChangeStatus.SAME:
        return f"the same {what} {within}"
    return f"not certain whether its {what} changed {within}{to_be_certain(change, grown)}"


def _functions(change: OperationChange, spread: Spread | None) -> str:
    """Which functions a change went to, as far as the samples tell."""
    if change.status is not ChangeStatus.CHANGED or change.cpu.now is None or change.cpu.before is None:
        return ""
    sure = [each for each in spread.functions if each.is_sure] if spread else []
    if not sure:
        if spread is None:
            return ""
        now, before = spread.samples
        cure = to_find_functions(change, spread)
        return f"; the samples do not tell in which functions: {before} and {now} samples{cure}"
    first, whole = sure[0], change.cpu.now.value - change.cpu.before.value
    if _NEARLY_ALL[0] <= first.growth.value / whole <= _NEARLY_ALL[1]:
        return f", nearly all in {first.function.name}"
    return ", " + ", ".join(f"{_signed(each.growth.value)} in {each.function.name}" for each in sure[:_NAMED])


def _beside(change: OperationChange) -> str:
    """What changed beside the CPU, and may be why: a request that fails does less."""
    said = ""
    duration, grown = change.duration, change.duration.growth
    only_duration = duration.status is ChangeStatus.CHANGED and change.status is not ChangeStatus.CHANGED
    if only_duration and grown and duration.now and duration.before:
        amounts = _amounts(duration.before.value, duration.now.value)
        said += f"; {_percent(grown.value)} % duration ({amounts}, {_percent(grown.low)} to {_percent(grown.high)} %)"
    if change.now and change.before and change.errors.status is ChangeStatus.CHANGED:
        rates = [100 * row["errors"] / row["requests"] for row in (change.before, change.now)]
        said += f"; {rates[0]:.3g} to {rates[1]:.3g} % errors"
    return said


def _amounts(*values: float) -> str:
    """Times in nanoseconds, all in the unit of the largest: "26.2 to 31.1 ms"."""
    size, unit = next((each for each in _UNITS if max(map(abs, values)) >= each[0]), _UNITS[-1])
    return f"{' to '.join(f'{value / size:.3g}' for value in values)} {unit}"


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else MINUS}{_amounts(abs(value))}"


def _percent(part: float) -> str:
    return f"{100 * part:+.{0 if abs(part) >= 0.0995 else 1}f}".replace("-", MINUS)


def _count(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
