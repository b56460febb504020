"""What a graph spends its value in: flat (in itself) and cumulative (with what it called)."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from api.tree.graph import Graph, Values, intervals


@dataclass(frozen=True)
class Top:
    """One row a group, in any order."""

    groups: npt.NDArray[np.int64]
    flat: Values
    cumulative: Values


def top(graph: Graph, group: npt.NDArray[np.int64]) -> Top:
    """Sums of the first side over `group` (n,), a number of each node.

    Recursion counts once: only the outermost node of a group on a stack gives to its cumulative sum.
    """
    groups, of = np.unique(group, return_inverse=True)
    flat, cumulative = np.zeros((2, len(groups)), np.int64)
    np.add.at(flat, of, graph.own[0])
    outermost = ~_inside_own_group(graph, of)
    np.add.at(cumulative, of[outermost], graph.total[0, outermost])
    return Top(groups, flat, cumulative)


def _inside_own_group(graph: Graph, of: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
    """Whether a node stands below another of its group.

    In depth-first order the nodes below one are an interval behind it, and intervals are nested or apart: so within a
    group, in that order, a node is inside when an interval that began before it has not ended.
    """
    first, end = intervals(graph.parent)
    order = np.lexsort((first, of))
    span = len(first) + 1
    # Each group gets a range of numbers of its own, so that one running maximum serves all.
    ends = (of[order] * span + end[order]).astype(np.int64)
    begins = (of[order] * span + first[order]).astype(np.int64)
    latest = np.maximum.accumulate(np.concatenate([[-1], ends[:-1]]))
    inside = np.zeros(len(first), bool)
    inside[order] = begins < latest
    return inside
