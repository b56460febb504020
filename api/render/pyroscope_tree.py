"""Graphs as the tree that Pyroscope's tools read (pkg/model/tree.go there): nodes with the names of their functions.

A node is the length of its name, the name, its self value and the number of its children, numbers as varints. The root
comes first. After a node comes the last of its children, with all that is below it, then the one before that.
"""

from collections import defaultdict

from api.render.by_name import by_name
from api.tree.functions import FunctionRows
from api.tree.graph import Graph
from icestream.columns.packed import varint


def tree(graph: Graph, functions: FunctionRows) -> bytes:
    """A graph of one side."""
    graph, names = by_name(graph, functions)
    children = defaultdict[int, list[int]](list)
    for row, parent in enumerate(graph.parent.tolist()):
        children[parent].append(row)
    encoded = [name.encode() for name in names]
    function, values = graph.function.tolist(), graph.self_values[0].tolist()
    pieces, waiting = [], [0]
    while waiting:
        row = waiting.pop()
        name, below = encoded[function[row]] if row else b"", children[row]  # the root has no name
        pieces.append(varint(len(name)) + name + varint(max(values[row], 0)) + varint(len(below)))
        waiting += below
    return b"".join(pieces)
