"""Stacks as a graph to draw, and the exact sums of functions beside it."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from api.array_types import Values
from api.tree.functions import TOTAL
from api.tree.graph import Graph, build_graph
from api.tree.path_id import find_path
from api.tree.stack_cache import FunctionStacks
from api.tree.top_table import TopTable, top_table
from api.views.invert import invert
from api.views.labels_first import LabelValues, labels_first


@dataclass(frozen=True)
class Arrangement:
    """How stacks are drawn: from their leaves, and below values of a label."""

    inverted: bool = False
    labels: LabelValues | None = None

    def shown(self, stacks: FunctionStacks) -> FunctionStacks:
        """The stacks in this arrangement."""
        shown = invert(stacks) if self.inverted else stacks
        return labels_first(shown, self.labels) if self.labels else shown


@dataclass(frozen=True)
class Drawn:
    """A graph, the row of the node that it is zoomed to, and the sums of functions there."""

    stacks: FunctionStacks
    graph: Graph
    root: int
    table: TopTable


def draw(stacks: FunctionStacks, values: Values, arrangement: Arrangement, root_path_id: int = 0) -> Drawn:
    """Sums up `values` (sides, n) of stacks, and finds the node with this path ID (the root, 0, if there is none).

    The table has the sums of what is below that node; of an inverted graph, of the whole stacks that go through it.
    """
    shown = arrangement.shown(stacks)
    graph = build_graph(shown.tree, shown.leaves, values)
    root = find_path(graph, shown.functions, root_path_id) if root_path_id else 0
    if not arrangement.inverted:
        table = top_table(graph, shown.tree, root)
    else:
        through = _goes_through(stacks, arrangement.labels, graph, root)
        whole = build_graph(stacks.tree, stacks.leaves[through], values[:, through])
        table = top_table(whole, stacks.tree)
    not_code = [TOTAL, *(arrangement.labels.functions.tolist() if arrangement.labels else ())]
    return Drawn(shown, graph, root, table.without(not_code))


def draw_callers(callers: FunctionStacks, values: Values) -> Drawn:
    """As `draw`, of the callers' side of a sandwich: callers have no flat values, since these are not spent there."""
    graph = build_graph(callers.tree, callers.leaves, values)
    table = top_table(graph, callers.tree).without(TOTAL)
    return Drawn(callers, graph, 0, replace(table, flat=np.zeros_like(table.flat)))


def _goes_through(
    stacks: FunctionStacks, labels: LabelValues | None, inverted: Graph, node: int
) -> npt.NDArray[np.bool_]:
    """Whether a stack (n,) is drawn through a node of the inverted graph."""
    path = []
    while node > 0:
        path.append(int(inverted.function[node]))
        node = int(inverted.parent[node])
    matches = np.ones(len(stacks.leaves), bool)
    if labels and path:
        matches = labels.functions[labels.value_of_stack] == path.pop()
    frame = stacks.leaves
    for function in reversed(path):
        matches &= stacks.tree.function[frame] == function
        frame = stacks.tree.parent[frame]
    return matches
