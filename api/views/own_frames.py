"""Leaves only own code in stacks: the time of libraries, interpreters and the kernel goes to the own code above it."""

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from api.array_types import Rows, Values
from api.tree.distinct import distinct_numbers
from api.tree.functions import Function, FunctionRows
from api.tree.graph import Tree
from api.tree.stack_cache import FunctionStacks
from api.views.hide import rebuild
from api.views.own_code import OwnCode, is_interpreted, is_own, parts_of
from api.views.used_part import levels_below_root, used_part, with_rows_below

_FIRST_ROW = 3 << 29
"""The function of the first part that is not own code, above the rows of all other functions but those of labels."""


class FrameChoice(StrEnum):
    ALL = "all"
    OWN = "own"
    AUTO = "auto"


def own_frames(
    stacks: FunctionStacks, rules: OwnCode, also: Callable[[Function], bool] | None = None
) -> FunctionStacks:
    """Without the frames that are not own code (api/views/own_code.py). Their own values go to the frame above them.

    A stack without own code has the one frame `[not my code: PART]`, of what tells most of it. Functions for which
    `also` is true stay, too.
    """
    used = used_part(stacks)
    rows, index = distinct_numbers(used.tree.function)
    functions = [used.whole_functions[row] for row in rows.tolist()]
    own = is_own(functions, rules)
    if also is not None:
        own |= np.array([also(used.functions[row]) for row in rows.tolist()], bool)
    if own.all():
        return used
    names, rank = parts_of(functions)
    rank[own] = -1  # only what is on stacks without own code is asked for
    telling = index[_outermost_of_highest(used.tree, rank[index])[used.leaves]]
    parts: dict[tuple[str, str], int] = {}
    shown: list[Function] = []
    part = np.zeros(len(functions), np.int32)
    for number in np.unique(telling).tolist():
        function = functions[number]
        module = "" if rank[number] == _PACKAGE_RANK else function.module
        part[number] = parts.setdefault((names[number], module), len(parts)) + _FIRST_ROW
        if len(shown) < len(parts):
            shown.append(Function(f"[not my code: {names[number]}]", module, kind=function.kind))
    dropped = ~own[index]
    leaves, tree = rebuild(used, dropped, used.tree.function, part[telling])
    return replace(used, leaves=leaves, tree=tree, functions=_WithParts(used.functions, shown))


def is_mostly_interpreted(stacks: FunctionStacks, values: Values) -> bool:
    """Whether stacks with code of an interpreter have at least half of `values` (sides, n)."""
    used = used_part(stacks)
    rows, index = distinct_numbers(used.tree.function)
    interpreted = is_interpreted([used.whole_functions[row] for row in rows.tolist()])
    on_stack = with_rows_below(used.tree, interpreted[index])[used.leaves]
    weight = np.abs(values).sum(axis=0, dtype=float)
    return bool(weight[on_stack].sum() * 2 >= weight.sum() > 0)


_PACKAGE_RANK = 3


def _outermost_of_highest(tree: Tree, rank: npt.NDArray[np.int8]) -> Rows:
    """The outermost one with the highest rank, among the frames from the root to each row (n,)."""
    highest, found = rank.copy(), np.arange(len(rank), dtype=np.int32)
    for level in levels_below_root(tree):
        above = tree.parent[level]
        stays = highest[above] >= highest[level]
        stays &= above != 0
        highest[level] = np.where(stays, highest[above], highest[level])
        found[level] = np.where(stays, found[above], found[level])
    return found


class _WithParts:
    def __init__(self, functions: FunctionRows, parts: list[Function]) -> None:
        self._functions, self._parts = functions, parts

    def __getitem__(self, row: int) -> Function:
        return self._parts[row - _FIRST_ROW] if 0 <= row - _FIRST_ROW < len(self._parts) else self._functions[row]
