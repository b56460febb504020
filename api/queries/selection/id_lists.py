"""Lists of IDs as parameters of queries, each as long as one query takes."""

from collections.abc import Iterator

from api.array_types import Ids

IDS_PER_QUERY = 20_000
MAX_QUERIES = 3
"""If more queries than this would be needed, a table that fits into memory is read whole instead."""


def id_lists(ids: Ids) -> Iterator[str]:
    """Yields values for a parameter of type Array(UInt64), as text: the client takes text ten times as fast."""
    for start in range(0, len(ids), IDS_PER_QUERY):
        yield f"[{','.join(map(str, ids[start : start + IDS_PER_QUERY].tolist()))}]"


def count_queries(ids: Ids) -> int:
    """How many lists `id_lists` yields."""
    return -(-len(ids) // IDS_PER_QUERY)
