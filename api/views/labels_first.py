"""Puts a label's value above the outermost frame of each stack."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from api.array_types import Rows
from api.tree.functions import Function, FunctionRows
from api.tree.growing_tree import GrowingTree
from api.tree.levels import levels, rows_above
from api.tree.stack_cache import FunctionStacks
from api.views.used_part import used_part

_LAST_ROW = 2**31 - 1
"""The function of the first value. Those of others are below it, far above the rows of real functions."""


@dataclass(frozen=True)
class LabelValues:
    """One value of a label for each stack (n,)."""

    label: str
    values: list[str]
    value_of_stack: Rows  # indexes into `values`

    def where(self, keep: npt.NDArray[np.bool_]) -> "LabelValues":
        """Those of the stacks to keep."""
        return replace(self, value_of_stack=self.value_of_stack[keep])

    @property
    def functions(self) -> Rows:
        """The row of the function that stands for each value."""
        return np.arange(_LAST_ROW, _LAST_ROW - len(self.values), -1).astype(np.int32)


def labels_first(stacks: FunctionStacks, labels: LabelValues) -> FunctionStacks:
    """The same stacks, each below its label's value."""
    used = used_part(stacks)
    tree = used.tree
    nodes = GrowingTree()
    leaves = np.zeros(len(used.leaves), np.int32)
    is_root = np.zeros(len(tree.parent), bool)
    is_root[0] = True
    for value in np.unique(labels.value_of_stack):  # without those of which focus or ignore left no stack
        chosen = labels.value_of_stack == value
        rows = rows_above(used.leaves[chosen], tree.parent, is_root)
        new_row = np.zeros(len(tree.parent), np.int32)
        new_row[0] = nodes.child(0, int(labels.functions[value]))
        for start, end in levels(tree.depth[rows]):
            part = rows[start:end]
            new_row[part] = nodes.children(new_row[tree.parent[part]], tree.function[part])
        leaves[chosen] = new_row[used.leaves[chosen]]
    functions = _WithLabels(used.functions, labels)
    return replace(used, leaves=leaves, tree=nodes.tree, functions=functions)


class _WithLabels:
    def __init__(self, functions: FunctionRows, labels: LabelValues) -> None:
        self._functions, self._labels = functions, labels

    def __getitem__(self, row: int) -> Function:
        if row <= _LAST_ROW - len(self._labels.values):
            return self._functions[row]
        return Function(self._labels.values[_LAST_ROW - row] or f"(no {self._labels.label})", kind="label")
