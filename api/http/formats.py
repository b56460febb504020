"""The formats of a graph, as parameters and in the API's description."""

from enum import StrEnum
from typing import Annotated, Any

from fastapi import Query


class Format(StrEnum):
    TREE = "tree"
    COLLAPSED = "collapsed"
    PPROF = "pprof"
    SPEEDSCOPE = "speedscope"


class DiffFormat(StrEnum):
    TREE = "tree"
    COLLAPSED = "collapsed"


FORMAT_QUERY = Query(
    alias="format",
    description="tree: JSON in columns; collapsed: text, one line for each stack; pprof: gzipped profile.proto;"
    " speedscope: JSON for speedscope.app.",
)
FormatParam = Annotated[Format, FORMAT_QUERY]
DiffFormatParam = Annotated[
    DiffFormat, Query(alias="format", description="tree: JSON in columns; collapsed: text, two values on each line.")
]

_FILE = {"schema": {"type": "string", "format": "binary"}}
GRAPH_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The profile in the requested format; docs/query-api.md describes the tree.",
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "text/plain": {"schema": {"type": "string"}, "example": "main;serve;parse 1200000000\n"},
            "application/octet-stream": _FILE,
        },
    }
}
