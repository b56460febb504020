"""The formats of a graph, as parameters."""

from enum import StrEnum
from typing import Annotated

from fastapi import Query


class Format(StrEnum):
    TREE = "tree"
    COLLAPSED = "collapsed"
    PPROF = "pprof"
    SPEEDSCOPE = "speedscope"
    FIREFOX = "firefox"
    PGO = "pgo"
    ARROW = "arrow"
    JSONL = "jsonl"


class DiffFormat(StrEnum):
    TREE = "tree"
    COLLAPSED = "collapsed"


FORMAT_QUERY = Query(
    alias="format",
    description="tree: JSON in columns; collapsed: text, one line for each stack; pprof: gzipped profile.proto;"
    " speedscope: JSON for speedscope.app; firefox: JSON for profiler.firefox.com; pgo: pprof of Go's functions for"
    " go build -pgo; arrow: an Arrow IPC stream with a row for each stack; jsonl: the same rows as lines of JSON.",
)
FormatParam = Annotated[Format, FORMAT_QUERY]
DiffFormatParam = Annotated[
    DiffFormat, Query(alias="format", description="tree: JSON in columns; collapsed: text, two values on each line.")
]
