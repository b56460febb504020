"""Profiles in the pprof format from graphs, whose frames a view has changed: one location for each function, without an
address. `api/render/pprof.py` makes profiles from addresses, in which pprof itself can tell lines and files apart."""

from collections.abc import Iterator
from collections.abc import Mapping as Labels

import numpy as np
import numpy.typing as npt

from api.array_types import Rows
from api.queries.selection.time_range import TimeRange
from api.render.paths import paths_from_root
from api.render.pprof import Strings, gzipped, head
from api.tree.functions import Function, FunctionRows
from api.tree.graph import Graph
from icestream.pprof.profile_pb2 import Profile


def pprof_of_functions(
    graph: Graph, functions: FunctionRows, profile_type: str, time_range: TimeRange | None, labels: Labels[str, str]
) -> Iterator[bytes]:
    """Yields it gzipped. `graph` has two sides: values, and counts of samples. Every sample gets `labels`."""
    return gzipped(_pieces(graph, functions, profile_type, time_range, labels))


def _pieces(
    graph: Graph, functions: FunctionRows, profile_type: str, time_range: TimeRange | None, labels: Labels[str, str]
) -> Iterator[Profile]:
    strings = Strings()
    total, samples = graph.self_values.sum(axis=1).tolist()
    yield head(strings, total, samples, profile_type, time_range)
    used, frame = np.unique(graph.function, return_inverse=True)
    rows = np.flatnonzero(graph.self_values.any(axis=0)).astype(np.int32)
    label_strings = [(strings.add(key), strings.add(value)) for key, value in labels.items()]
    yield from _samples(graph, rows, frame + 1, label_strings)
    yield _functions([functions[row] for row in used.tolist()], strings)


def _samples(
    graph: Graph, rows: Rows, location: npt.NDArray[np.intp], label_strings: list[tuple[int, int]]
) -> Iterator[Profile]:
    """A sample for each node with a value of its own."""
    values = iter(zip(graph.self_values[1, rows].tolist(), graph.self_values[0, rows].tolist(), strict=True))
    for paths in paths_from_root(rows, graph.parent, location):
        piece = Profile()
        for path, value in zip(paths, values, strict=False):
            sample = piece.sample.add(location_id=path[::-1] or location[:1].tolist(), value=value)
            for key, text in label_strings:
                sample.label.add(key=key, str=text)
        yield piece


def _functions(functions: list[Function], strings: Strings) -> Profile:
    """What samples refer to: functions and their locations by number, from 1 on; modules as mappings."""
    piece = Profile()
    mappings: dict[str, int] = {}
    for number, function in enumerate(functions, 1):
        name = strings.add(function.name)
        piece.function.add(id=number, name=name, system_name=name, filename=strings.add(function.file),
                           start_line=function.line)  # fmt: skip
        location = piece.location.add(id=number)
        if function.module:
            location.mapping_id = mappings.setdefault(function.module, len(mappings) + 1)
        location.line.add(function_id=number, line=function.line)
    for module, number in mappings.items():
        # For mappings without functions, pprof would look for names elsewhere.
        piece.mapping.add(id=number, filename=strings.add(module), has_functions=True)
    piece.string_table.extend(strings)
    return piece
