"""The samples of a query, summed up by stack."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from api.array_types import Ids, Values
from api.errors import too_large
from api.queries.database import Database
from api.queries.rollups import make_plan, stack_levels, stack_sources
from api.queries.selection.conditions import Conditions
from api.queries.selection.selection import Selection
from api.queries.stacks.gauges import averaged_stacks
from api.queries.stacks.whole_sums import HAVING, SUMS, whole_sums


@dataclass(frozen=True)
class StackValues:
    """n stacks, each once."""

    stack_ids: Ids
    values: Values
    counts: Values
    rollups: list[dict[str, Any]] = field(default_factory=list)
    """What was read from rollups instead of samples, for people."""

    def where(self, keep: npt.NDArray[np.bool_] | None) -> "StackValues":
        """These stacks only; all of them if `keep` is None."""
        if keep is None:
            return self
        return StackValues(self.stack_ids[keep], self.values[keep], self.counts[keep], self.rollups)

    @property
    def total(self) -> int:
        return int(self.values.sum())

    @property
    def samples(self) -> int:
        return int(self.counts.sum())


def read_selected_stacks(database: Database, selection: Selection, max_stacks: int) -> StackValues:
    """Sums of the selected samples by stack, from rollups where there are some; averages of gauges. Raises ApiError."""
    plan = make_plan(database, selection.time_range, stack_levels(selection, selection.by_service))
    if selection.is_gauge:
        sources = [averaged_stacks(plan, selection)]
    else:
        sources = stack_sources(plan, selection, selection.by_service)
    return replace(_read(database, sources, max_stacks), rollups=plan.as_json())


def read_stack_values(database: Database, table: str, conditions: Conditions, max_stacks: int) -> StackValues:
    """Sums of `value` and `count` by stack, over the rows of `table` that fulfil the conditions. Raises ApiError."""
    return _read(database, [(table, conditions)], max_stacks)


def read_stacks_of_traces(
    database: Database, selection: Selection, trace_ids: list[str], max_stacks: int
) -> StackValues:
    """Sums of the selected samples that have one of these traces, by stack. Raises ApiError."""
    conditions = selection.conditions()
    conditions.add(f"trace_id IN {conditions.bind_trace_ids(trace_ids)}")
    return read_stack_values(database, "trace_samples", conditions, max_stacks)


def _read(database: Database, sources: list[tuple[str, Conditions]], max_stacks: int) -> StackValues:
    rows = " UNION ALL ".join(
        f"SELECT stack_id, value, toInt64(count) AS count FROM {table} {each.where}" for table, each in sources
    )
    answer = database.table(
        f"SELECT stack_id, {SUMS} FROM ({rows}) GROUP BY stack_id {HAVING} LIMIT {int(max_stacks) + 1}",
        sources[0][1].parameters,
        has_few_groups=True,
    )
    if len(answer) > max_stacks:
        raise too_large(f"the query selects more than {max_stacks} different stacks")
    ids, counts = answer["stack_id"].to_numpy(), answer["sum_of_counts"].to_numpy()
    return StackValues(ids, whole_sums(answer, ids), counts.astype(np.int64))
