"""The samples of a query, summed up by stack."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from api.array_types import Ids, Values
from api.errors import too_large
from api.queries.conditions import Conditions
from api.queries.database import Database


@dataclass(frozen=True)
class StackValues:
    """n stacks, each once."""

    stack_ids: Ids
    values: Values
    counts: Values

    def where(self, keep: npt.NDArray[np.bool_] | None) -> "StackValues":
        """These stacks only; all of them if `keep` is None."""
        if keep is None:
            return self
        return StackValues(self.stack_ids[keep], self.values[keep], self.counts[keep])

    @property
    def total(self) -> int:
        return int(self.values.sum())

    @property
    def samples(self) -> int:
        return int(self.counts.sum())


def read_stack_values(database: Database, table: str, alternatives: list[Conditions], max_stacks: int) -> StackValues:
    """Sums of `value` and `count` by stack, over the rows of `table` that fulfil one of `alternatives`.

    No row may fulfil two of them, and they share their parameters. Raises ApiError.
    """
    rows = " UNION ALL ".join(f"SELECT stack_id, value, count FROM {table} {each.where}" for each in alternatives)
    answer = database.table(
        f"SELECT stack_id, sum(value) AS value, sum(count) AS count FROM ({rows})"
        f" GROUP BY stack_id HAVING value != 0 OR count != 0 LIMIT {int(max_stacks) + 1}",
        alternatives[0].parameters,
    )
    if len(answer) > max_stacks:
        raise too_large(f"the query selects more than {max_stacks} different stacks")
    ids, values, counts = (column.to_numpy() for column in answer.columns)
    return StackValues(ids, values, counts.astype(np.int64))
