"""Parameters of routes that answer with a tree: which way round, and which part of it."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Query

from api.errors import too_large
from api.http.app_state import ApiState, app_state
from api.settings import ApiSettings

DEFAULT_MAX_NODES = 20_000

MaxNodesParam = Annotated[
    int,
    Query(
        ge=1,
        description="Nodes to keep in a tree, the heaviest ones; what is cut below a node becomes its child [cut].",
    ),
]
WidthParam = Annotated[
    int | None,
    Query(ge=1, le=100_000, description="Width of the graph in pixels: cut nodes that are narrower than half a pixel."),
]
RootParam = Annotated[
    str | None,
    Query(pattern="^[0-9a-f]{8}$", description="Path ID of a node: keep only what is below it, and the path to it."),
]
InvertParam = Annotated[
    bool, Query(description="Turn stacks round: innermost frames first, and what called them below them.")
]


@dataclass(frozen=True)
class TreeShape:
    """Which way round a tree is, and which part of it an answer has."""

    max_nodes: int
    width: int | None
    root: int  # path ID; 0 for the root of all
    invert: bool

    def check(self, settings: ApiSettings) -> None:
        """Raises ApiError if one answer may not have that many nodes."""
        if self.max_nodes > settings.api_max_nodes:
            hint = "ask for fewer nodes, or for format=pprof, which has them all"
            raise too_large(f"max_nodes is at most {settings.api_max_nodes} here", hint)


def tree_shape(
    state: Annotated[ApiState, Depends(app_state)],
    max_nodes: MaxNodesParam = DEFAULT_MAX_NODES,
    width: WidthParam = None,
    root: RootParam = None,
    invert: InvertParam = False,
) -> TreeShape:
    """For routes, as a dependency. Raises ApiError."""
    shape = TreeShape(max_nodes, width, int(root, 16) if root else 0, invert)
    shape.check(state.settings)
    return shape
