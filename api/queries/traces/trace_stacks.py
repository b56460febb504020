"""The samples of one request by stack, as measured or scaled to its CPU."""

from dataclasses import dataclass

import numpy as np

from api.array_types import Values
from api.errors import too_large
from api.queries.database import Database, texts
from api.queries.operations.confidence import is_cpu
from api.queries.stacks.stack_values import StackValues
from api.queries.traces.trace_cpu import TraceCpu, trace_conditions


@dataclass(frozen=True)
class TraceStacks:
    stacks: StackValues
    unsampled_cpu_ns: int
    """CPU of services without samples, which no stack has. 0 if values are as measured."""


def read_trace_stacks(database: Database, cpu: TraceCpu, is_scaled: bool, max_stacks: int) -> TraceStacks:
    """Sums of `value` and `count` by stack. Raises ApiError.

    `is_scaled`: the values of each service add up to its CPU. Other profile types than CPU are never scaled.
    """
    conditions = trace_conditions(cpu.trace_id, cpu.profile_type)
    answer = database.table(
        "SELECT toString(service) AS service, stack_id, sum(value) AS value, sum(count) AS count"
        f" FROM trace_samples {conditions.where}"
        f" GROUP BY service, stack_id HAVING value != 0 OR count != 0 LIMIT {int(max_stacks) + 1}",
        conditions.parameters,
    )
    if len(answer) > max_stacks:
        raise too_large(f"the request has more than {max_stacks} different stacks")
    stack_ids, values, counts = (answer[name].to_numpy() for name in ("stack_id", "value", "count"))
    values, unsampled = values.astype(np.int64), 0
    if is_scaled and is_cpu(cpu.profile_type):
        of_service = np.array(texts(answer["service"]), object)
        for service in cpu.services:
            rows = np.flatnonzero(of_service == service.key)
            if values[rows].sum() > 0:
                values[rows] = scaled_to(values[rows], service.cpu_ns)
            else:
                unsampled += service.cpu_ns
    stack_ids, row_of = np.unique(stack_ids, return_inverse=True)
    sums = np.zeros((2, len(stack_ids)), np.int64)
    np.add.at(sums[0], row_of, values)
    np.add.at(sums[1], row_of, counts.astype(np.int64))
    return TraceStacks(StackValues(stack_ids, sums[0], sums[1]), unsampled)


def scaled_to(values: Values, total: int) -> Values:
    """The values (n,) times one factor, as integers whose sum is `total`. The sum of `values` is above 0."""
    ends = np.rint(np.cumsum(values) * (total / int(values.sum()))).astype(np.int64)
    ends[-1] = total
    parts: Values = np.diff(ends, prepend=np.int64(0))
    return parts
