"""Graphs as the tree that Pyroscope's tools read (pkg/model/tree.go there): nodes with the names of their functions.

A node is the length of its name, the name, its self value and the number of its children, numbers as varints. The root
comes first. After a node comes the last of its children, with all that is below it, then the one before that.
"""

from collections import defaultdict

from api.tree.functions import FunctionRows
from api.tree.graph import Graph
from icestream.packed import varint


def tree(graph: Graph, functions: FunctionRows) -> bytes:
    """A graph of one side. Children of one node that have one name are one node: Pyroscope keeps the last of such."""
    names, values, children = [""], [0], defaultdict[int, list[int]](list)
    rows: dict[tuple[int, str], int] = {}
    row_of = [0]  # of each node of the graph
    parents, selves = graph.parent.tolist(), graph.self_values[0].tolist()
    for parent, function, value in list(zip(parents, graph.function.tolist(), selves, strict=True))[1:]:
        key = row_of[parent], functions[function].name
        row = rows.get(key)
        if row is None:
            row = rows[key] = len(names)
            names.append(key[1])
            values.append(0)
            children[key[0]].append(row)
        values[row] += value
        row_of.append(row)
    pieces, waiting = [], [0]
    while waiting:
        row = waiting.pop()
        name, below = names[row].encode(), children[row]
        pieces.append(varint(len(name)) + name + varint(max(values[row], 0)) + varint(len(below)))
        waiting += below
    return b"".join(pieces)
