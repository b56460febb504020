"""The table of a graph's functions or modules: flat (in itself) and cumulative (with what it called)."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from api.array_types import Values
from api.tree.graph import Graph
from api.tree.levels import depth_first_intervals


@dataclass(frozen=True)
class TopTable:
    """One row for each group of nodes, in any order."""

    groups: npt.NDArray[np.int64]
    flat: Values
    cumulative: Values


def top_table(graph: Graph, group: npt.NDArray[np.int64]) -> TopTable:
    """Sums of the first side over `group` (n,), a number for each node.

    Recursion counts once: of a group's nodes on one stack, only the outermost adds to the cumulative sum.
    """
    groups, row = np.unique(group, return_inverse=True)
    flat, cumulative = np.zeros((2, len(groups)), np.int64)
    np.add.at(flat, row, graph.self_values[0])
    outermost = ~_is_below_same_group(graph, row)
    np.add.at(cumulative, row[outermost], graph.total_values[0, outermost])
    return TopTable(groups, flat, cumulative)


def _is_below_same_group(graph: Graph, group: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
    """Whether a node has a node of its group above it.

    In depth-first order, the descendants of a node are the interval after it, and two intervals are nested or disjoint.
    So within a group, in that order, a node is below another if an interval that began before it has not ended.
    """
    first, end = depth_first_intervals(graph.parent)
    order = np.lexsort((first, group))
    span = len(first) + 1
    # Each group gets its own range of numbers, so that one running maximum serves all groups.
    ends = (group[order] * span + end[order]).astype(np.int64)
    starts = (group[order] * span + first[order]).astype(np.int64)
    latest_end = np.maximum.accumulate(np.concatenate([[-1], ends[:-1]]))
    is_below = np.zeros(len(first), bool)
    is_below[order] = starts < latest_end
    return is_below
