"""The formats of a graph, as parameters."""

from enum import StrEnum
from typing import Annotated

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
