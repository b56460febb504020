"""Parameters of routes that answer with a graph or a table of functions."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
from fastapi import Query

from api.array_types import Ids
from api.errors import too_large
from api.http.app_state import AppState
from api.settings import ApiSettings
from api.tree.focus import check_pattern, has_function

DEFAULT_MAX_NODES = 20_000
_MAX_PATTERN = 1000

MaxNodesParam = Annotated[
    int,
    Query(
        ge=1,
        description="Nodes to keep in a tree, the heaviest ones; what is cut below a node becomes its child [cut].",
    ),
]
WidthParam = Annotated[
    int | None,
    Query(ge=1, le=100_000, description="Cut nodes of a tree that are narrower than half of one of so many pixels."),
]
RootParam = Annotated[
    str | None,
    Query(pattern="^[0-9a-f]{8}$", description="Path ID of a node: keep only what is below it, and the path to it."),
]
_PATTERN = "regular expression (RE2, unanchored, regardless of case) matches a frame's function, module or source file."
FocusParam = Annotated[
    str | None, Query(max_length=_MAX_PATTERN, description=f"Keep only stacks where this {_PATTERN}")
]
IgnoreParam = Annotated[
    str | None, Query(max_length=_MAX_PATTERN, description=f"Leave out stacks where this {_PATTERN}")
]


@dataclass(frozen=True)
class TreeShape:
    """Which part of a tree an answer has."""

    max_nodes: int
    width: int | None
    root: int  # path ID; 0 for the root of all

    def check(self, settings: ApiSettings) -> None:
        """Raises ApiError if one answer may not have that many nodes."""
        if self.max_nodes > settings.api_max_nodes:
            hint = "ask for fewer nodes, or for format=pprof, which has them all"
            raise too_large(f"max_nodes is at most {settings.api_max_nodes} here", hint)


def tree_shape(
    max_nodes: MaxNodesParam = DEFAULT_MAX_NODES, width: WidthParam = None, root: RootParam = None
) -> TreeShape:
    """For routes, as a dependency."""
    return TreeShape(max_nodes, width, int(root, 16) if root else 0)


@dataclass(frozen=True)
class Focus:
    """Which stacks an answer is about, by their functions."""

    focus: str | None
    ignore: str | None

    def keeps(self, state: AppState, stack_ids: Ids) -> npt.NDArray[np.bool_] | None:
        """Whether a stack is kept (n,); None if all are. Raises ApiError."""
        if not self.focus and not self.ignore:
            return None
        stacks = state.stacks.functions_of(stack_ids)
        keep = np.ones(len(stack_ids), bool)
        if self.focus:
            keep &= has_function(stacks, self.focus)
        if self.ignore:
            keep &= ~has_function(stacks, self.ignore)
        return keep


def focus(focus: FocusParam = None, ignore: IgnoreParam = None) -> Focus:
    """For routes, as a dependency. Raises ApiError."""
    for name, pattern in (("focus", focus), ("ignore", ignore)):
        if pattern:
            check_pattern(pattern, name)
    return Focus(focus, ignore)
