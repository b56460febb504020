"""The functions of stack IDs, for consumers of topics that missed an announcement."""

from typing import Annotated, Literal

import numpy as np
from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from api.errors import bad_request
from api.http.answer_model import Answer, described
from api.http.answers import json_response
from api.http.app_state import ApiState, app_state
from api.render.announcement import announcement
from api.tree.function_tree import UNRESOLVED_ROW
from api.tree.functions import FunctionRows
from api.tree.graph import Tree

router = APIRouter(tags=["labels"])


class StackAnswer(Answer):
    stack_id: str
    functions: list[str]
    modules: list[str]


class StacksAnswer(Answer):
    stacks: list[StackAnswer]
    unknown: list[str]


_MAX_IDS = 1_000
_EXAMPLE = {
    "stacks": [{"stack_id": "1f2e3d4c5b6a7988", "functions": ["main", "serve"], "modules": ["shop", "shop"]}],
    "unknown": ["00000000000000ff"],
}
_RESPONSES = described(StacksAnswer, _EXAMPLE)
_RESPONSES[200]["content"]["application/x-protobuf"] = {"schema": {"type": "string", "format": "binary"}}


@router.get("/api/v1/stacks", summary="Name stack IDs", responses=_RESPONSES)
def stacks(
    state: Annotated[ApiState, Depends(app_state)],
    ids: Annotated[
        str,
        Query(
            max_length=17 * _MAX_IDS,
            description=f"Stack IDs of 16 hex digits, separated by commas; at most {_MAX_IDS}.",
            examples=["1f2e3d4c5b6a7988"],
        ),
    ],
    output_format: Annotated[
        Literal["json", "protobuf"],
        Query(
            alias="format",
            description="protobuf: as icestream.stacks announces nodes and locations, without what is unknown.",
        ),
    ] = "json",
) -> Response:
    """The functions of each stack, root first, with their newest names, and the mapped file of each.

    `unknown` lists the IDs whose stacks are not stored (yet). `format=protobuf` answers with messages `StackBatch`
    instead, each after its length (a varint).
    """
    numbers = np.array([_number(text.strip()) for text in ids.split(",")], np.uint64)
    if output_format == "protobuf":
        data = announcement(state.database, state.stacks.nodes_of(numbers[numbers != 0]))
        return Response(data, media_type="application/x-protobuf")
    found = state.stacks.functions_of(numbers)
    known, unknown = [], []
    for number, leaf in zip(numbers.tolist(), found.leaves.tolist(), strict=True):
        stack_id = f"{number:016x}"
        if leaf == UNRESOLVED_ROW:
            unknown.append(stack_id)
        else:
            known.append({"stack_id": stack_id, **_frames(found.tree, leaf, found.functions)})
    return json_response({"stacks": known, "unknown": unknown})


def _number(text: str) -> int:
    """Raises ApiError."""
    if len(text) != 16 or set(text.lower()) - set("0123456789abcdef"):
        hint = "16 hex digits, as in 1f2e3d4c5b6a7988"
        raise bad_request("bad_parameter", f"ids: not a stack ID: {text[:60]!r}", hint)
    return int(text, 16)


def _frames(tree: Tree, leaf: int, functions: FunctionRows) -> dict[str, list[str]]:
    path = []
    while leaf > 0:
        path.append(functions[int(tree.function[leaf])])
        leaf = int(tree.parent[leaf])
    return {"functions": [each.name for each in path[::-1]], "modules": [each.module for each in path[::-1]]}
