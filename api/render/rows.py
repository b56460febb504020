"""Graphs as rows: one for each stack, with its functions and modules (root first), its value and its samples.

As an Arrow IPC stream, for pandas, polars and DuckDB, and as JSON lines.
"""

import io
import json
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from api.render.paths import paths_from_root
from api.tree.functions import FunctionRows
from api.tree.graph import Graph

ARROW_MEDIA_TYPE = "application/vnd.apache.arrow.stream"
ARROW_FILE_NAME = "icestream.arrows"
JSONL_MEDIA_TYPE = "application/x-ndjson"
JSONL_FILE_NAME = "icestream.jsonl"

_TEXT = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema(
    [
        ("functions", pa.list_(_TEXT)),
        ("modules", pa.list_(_TEXT)),
        ("value", pa.int64()),
        ("samples", pa.int64()),
    ]
)


def arrow(graph: Graph, functions: FunctionRows) -> Iterator[bytes]:
    """Yields pieces of the stream. `graph` has two sides: values, and counts of samples."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        for batch in _batches(graph, functions):
            writer.write_batch(batch)
            yield sink.getvalue()
            sink.seek(0)
            sink.truncate()
    yield sink.getvalue()


def jsonl(graph: Graph, functions: FunctionRows) -> Iterator[str]:
    """Yields pieces of text. `graph` is as of `arrow`."""
    for batch in _batches(graph, functions):
        lines = (json.dumps(row, separators=(",", ":"), ensure_ascii=False) for row in batch.to_pylist())
        yield "".join(f"{line}\n" for line in lines)


def _batches(graph: Graph, functions: FunctionRows) -> Iterator[pa.RecordBatch]:
    """Rows of SCHEMA, one for each node with a value or samples of its own; names are indexes into one dictionary."""
    used, frame = np.unique(graph.function, return_inverse=True)
    of_used = [functions[row] for row in used.tolist()]
    names, name = _numbered(each.name for each in of_used)
    modules, module = _numbered(each.module for each in of_used)
    rows = np.flatnonzero(graph.self_values.any(axis=0)).astype(np.int32)
    first = 0
    for paths in paths_from_root(rows, graph.parent, frame):
        part = rows[first : first + len(paths)]
        first += len(paths)
        offsets = pa.array(np.concatenate([[0], np.cumsum([len(path) for path in paths])]), pa.int32())
        frames = np.array([frame for path in paths for frame in path], np.int64)
        yield pa.record_batch(
            [
                pa.ListArray.from_arrays(offsets, _encoded(name[frames], names)),
                pa.ListArray.from_arrays(offsets, _encoded(module[frames], modules)),
                pa.array(graph.self_values[0, part]),
                pa.array(graph.self_values[1, part]),
            ],
            schema=SCHEMA,
        )


def _numbered(texts: Iterable[str]) -> "tuple[list[str], np.ndarray[tuple[int], np.dtype[np.intp]]]":
    """Returns the different texts, and the number of each. numpy would make all as long as the longest."""
    numbers: dict[str, int] = {}
    codes = np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.intp)
    return list(numbers), codes


def _encoded(codes: "np.ndarray[tuple[int], np.dtype[np.intp]]", texts: list[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(texts, pa.string()))
