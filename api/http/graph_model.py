"""What graphs look like as JSON, for /openapi.json; docs/query-api.md explains the members."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from api.http.answer_model import Answer, Responses, RollupPart, SelectionAnswer
from api.render.rows import ARROW_MEDIA_TYPE, JSONL_MEDIA_TYPE
from api.tree.functions import KINDS

_ROW_EXAMPLE = '{"functions":["main","serve"],"modules":["shop","shop"],"value":1200000000,"samples":120}\n'


class TreeFunctions(Answer):
    name: list[int]
    module: list[int]
    file: list[int]
    line: list[int]
    kind: list[int]
    named: list[int]
    flat: list[int]
    cumulative: list[int]


class TreeNodes(Answer):
    parent: list[int]
    function: list[int]
    self: list[int]
    total: list[int]


class TreeCut(Answer):
    nodes: int
    value: int


class TreeRest(Answer):
    functions: int
    flat: int


class TreeAnswer(Answer):
    """What `tree_answer` gives."""

    root: int
    cut: TreeCut
    rest: TreeRest
    strings: list[str]
    kinds: list[str] = Field(examples=[list(KINDS)])
    functions: TreeFunctions
    nodes: TreeNodes


class TreeMembers(TreeAnswer):
    """What every tree that is an answer has."""

    unit: str
    total: int
    samples: int
    stacks: int
    frames: str = Field(examples=["all"])


class MergeAnswer(TreeMembers, SelectionAnswer):
    """The tree of a selection."""


class SandwichAnswer(SelectionAnswer):
    """What calls a function, and what it calls."""

    function: str
    module: str | None
    file: str | None
    of_total: int
    total: int
    samples: int
    stacks: int
    frames: str = Field(examples=["all"])
    callers: TreeAnswer
    callees: TreeAnswer


class DiffFunctions(TreeFunctions):
    baseline_flat: list[int]
    baseline_cumulative: list[int]
    changed: list[int] | None = Field(
        description="1 where the samples support that the flat value changed; null: not of CPU"
    )


class DiffNodes(TreeNodes):
    baseline_self: list[int]
    baseline_total: list[int]
    changed: list[int] | None = Field(description="Likewise, the total")


class DiffCut(TreeCut):
    baseline_value: int


class DiffRest(TreeRest):
    baseline_flat: int


class DiffMembers(TreeMembers):
    """What every tree of two profiles has."""

    baseline_total: int
    baseline_samples: int
    baseline_stacks: int
    scale: float
    baseline_scale: float
    cut: DiffCut
    rest: DiffRest
    functions: DiffFunctions
    nodes: DiffNodes


class Diff(DiffMembers, MergeAnswer):
    """Two profiles over one tree."""

    baseline_selector: str
    baseline_start: str
    baseline_end: str
    baseline_rollups: list[RollupPart]
    scaling: str = Field(description="request, share or value: how the sides were made comparable")


class Speedscope(BaseModel):
    """A file of speedscope.app; its own schema says more."""

    model_config = ConfigDict(extra="allow")
    schema_: Literal["https://www.speedscope.app/file-format-schema.json"] = Field(alias="$schema")
    shared: dict[str, Any]
    profiles: list[dict[str, Any]]


class Firefox(BaseModel):
    """A file of profiler.firefox.com; src/types/profile.ts of its source says more."""

    model_config = ConfigDict(extra="allow")
    meta: dict[str, Any]
    shared: dict[str, Any]
    threads: list[dict[str, Any]]


def graph_responses(model: Any, example: dict[str, Any] | None = None, binary: bool = True) -> Responses:
    """The `responses` of a route that answers in several formats; `model` describes those that are JSON."""
    content: dict[str, Any] = {
        "application/json": {"example": example} if example else {},
        "text/plain": {"schema": {"type": "string"}, "example": "main;serve;parse 1200000000\n"},
    }
    if binary:
        for media_type in ("application/octet-stream", ARROW_MEDIA_TYPE):
            content[media_type] = {"schema": {"type": "string", "format": "binary"}}
        content[JSONL_MEDIA_TYPE] = {"schema": {"type": "string"}, "example": _ROW_EXAMPLE}
    description = "The profile in the requested format; docs/query-api.md describes the tree."
    return {200: {"model": model, "description": description, "content": content}}
