"""The samples of a query, summed up by stack."""

from dataclasses import dataclass

import numpy as np

from api.errors import too_large
from api.queries.conditions import Where
from api.queries.database import Database
from api.tree.graph import Values
from api.tree.hash_index import Keys


@dataclass(frozen=True)
class StackValues:
    """n stacks, each once."""

    stack_ids: Keys
    values: Values
    counts: Values

    @property
    def total(self) -> int:
        return int(self.values.sum())

    @property
    def samples(self) -> int:
        return int(self.counts.sum())


def read_stack_values(database: Database, table: str, branches: list[Where], max_stacks: int) -> StackValues:
    """Sums of `value` and `count` per stack, of the rows of `table` for which one of the conditions holds.

    No row may fulfil two; they have their parameters in common. Raises ApiError.
    """
    rows = " UNION ALL ".join(f"SELECT stack_id, value, count FROM {table} {where.sql}" for where in branches)
    answer = database.table(
        f"SELECT stack_id, sum(value) AS value, sum(count) AS count FROM ({rows})"
        f" GROUP BY stack_id HAVING value != 0 OR count != 0 LIMIT {int(max_stacks) + 1}",
        branches[0].parameters,
    )
    if len(answer) > max_stacks:
        raise too_large(f"more than {max_stacks} different stacks")
    ids, values, counts = (column.to_numpy() for column in answer.columns)
    return StackValues(ids, values, counts.astype(np.int64))
