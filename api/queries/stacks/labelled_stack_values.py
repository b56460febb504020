"""The samples of a query, summed up by stack and by the value of a label."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from api.array_types import Rows
from api.errors import too_large
from api.queries.database import Database, texts
from api.queries.rollups import make_plan, stack_levels, stack_sources
from api.queries.selection.sample_operations import OPERATION, with_operations
from api.queries.selection.sample_spans import NAME_OR_LABEL, REQUEST_LABELS, check_groups, with_span_names
from api.queries.selection.selection import Selection
from api.queries.stacks.gauges import averaged_stacks
from api.queries.stacks.stack_values import StackValues
from api.queries.stacks.whole_sums import HAVING, PLAIN_STACK, SUMS, whole_sums
from icestream.clickhouse.span_operations import JOIN_SPAN_NAMES, OPERATION_OF_SAMPLE

_MAX_VALUES = 1000
_SERVICE = "service"


@dataclass(frozen=True)
class LabelledStackValues:
    """n pairs of a stack and a value of the label, each once."""

    stacks: StackValues
    values: list[str]  # of the label; "" for series without it
    value_of_stack: Rows  # (n,), indexes into `values`


def read_labelled_stack_values(
    database: Database, selection: Selection, label: str, max_stacks: int
) -> LabelledStackValues:
    """As `read_selected_stacks`, for each value of a label. Raises ApiError."""
    check_groups([label])
    if label in REQUEST_LABELS:
        selection.check_operations()
        return _by_request_label(database, selection, label, max_stacks)
    if label == _SERVICE and selection.by_service and not selection.is_gauge:
        return _by_service(database, selection, max_stacks)
    plan = make_plan(database, selection.time_range, stack_levels(selection, by_service=False))
    if selection.is_gauge:
        sources = [averaged_stacks(plan, selection)]
    else:
        sources = stack_sources(plan, selection, by_service=False)
    rows = " UNION ALL ".join(
        f"SELECT series_id, {PLAIN_STACK}, value, toInt64(count) AS count FROM {table} {each.where}"
        for table, each in sources
    )
    conditions = sources[0][1]
    name = conditions.bind(label, "String")
    # A series that is not stored (yet) has no labels.
    answer = database.table(
        f"SELECT labels_of.label AS label, stack_id, {SUMS}"
        f" FROM ({rows}) AS sums"
        f" LEFT JOIN (SELECT series_id, any(toString(labels[{name}])) AS label FROM series GROUP BY series_id)"
        " AS labels_of ON sums.series_id = labels_of.series_id"
        f" GROUP BY label, stack_id {HAVING} LIMIT {int(max_stacks) + 1}",
        conditions.parameters,
    )
    return _labelled(answer, label, max_stacks, plan.as_json())


def _by_service(database: Database, selection: Selection, max_stacks: int) -> LabelledStackValues:
    """A query by service returns about one row for each stack; one by series returns one for each host and stack."""
    plan = make_plan(database, selection.time_range, stack_levels(selection, by_service=True))
    sources = stack_sources(plan, selection, by_service=True)
    rows = " UNION ALL ".join(
        f"SELECT toString(service) AS label, stack_id, value, toInt64(count) AS count FROM {table} {each.where}"
        for table, each in sources
    )
    answer = database.table(
        f"SELECT label, stack_id, {SUMS} FROM ({rows}) GROUP BY label, stack_id {HAVING} LIMIT {int(max_stacks) + 1}",
        sources[0][1].parameters,
    )
    return _labelled(answer, _SERVICE, max_stacks, plan.as_json())


def _by_request_label(database: Database, selection: Selection, label: str, max_stacks: int) -> LabelledStackValues:
    conditions = selection.conditions()
    ranges = [selection.time_range]
    asked = selection.of_any_request(ranges, conditions.parameters)
    if label == OPERATION:
        column, table = OPERATION_OF_SAMPLE, with_operations(asked, ranges, selection.matchers)
    else:
        column, table = NAME_OR_LABEL, with_span_names("samples", asked, ranges) + JOIN_SPAN_NAMES
    answer = database.table(
        f"SELECT {column} AS label, stack_id, {SUMS} FROM {table} {conditions.where}"
        f" GROUP BY label, stack_id {HAVING} LIMIT {int(max_stacks) + 1}",
        conditions.parameters,
    )
    return _labelled(answer, label, max_stacks, [])


def _labelled(answer: pa.Table, label: str, max_stacks: int, rollups: list[dict[str, Any]]) -> LabelledStackValues:
    """`answer`: label, stack_id and SUMS."""
    if len(answer) > max_stacks:
        raise too_large(f"the query selects more than {max_stacks} different stacks by {label[:100]}")
    dictionary = answer["label"].combine_chunks().dictionary_encode()
    values = texts(dictionary.dictionary)
    if len(values) > _MAX_VALUES:
        hint = "give a label with fewer values, or a selector"
        raise too_large(f"{label[:100]} has more than {_MAX_VALUES} values here", hint)
    value_of_stack: Rows = dictionary.indices.to_numpy(zero_copy_only=False).astype(np.int32)
    ids, counts = answer["stack_id"].to_numpy(), answer["sum_of_counts"].to_numpy()
    stacks = StackValues(ids, whole_sums(answer, ids, value_of_stack), counts.astype(np.int64), rollups)
    return LabelledStackValues(stacks, values, value_of_stack)
