"""One profile over a selector and a time range."""

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from api.http.answers import About, graph_answer
from api.http.app_state import Context, context
from api.http.formats import DEFAULT_MAX_NODES, GRAPH_RESPONSES, Format, FormatParam, MaxNodesParam
from api.queries.selection import Scope, scope
from api.queries.stack_values import read_stack_values

router = APIRouter(tags=["profiles"])


@router.get("/api/v1/merge", summary="Merge samples to one profile", responses=GRAPH_RESPONSES)
def merge(
    scope: Annotated[Scope, Depends(scope)],
    context: Annotated[Context, Depends(context)],
    format: FormatParam = Format.TREE,
    max_nodes: MaxNodesParam = DEFAULT_MAX_NODES,
) -> Response:
    """Sums up all samples of a selector in a time range."""
    values = read_stack_values(context.database, "samples", scope.branches(), context.settings.api_max_stacks)
    return graph_answer(context, values, About(scope.profile_type, scope.time, scope.as_json()), format, max_nodes)
