"""Gauges: profiles of what there is at a moment. Several of them are averaged over time instead of summed up."""

from typing import Any

from api.queries.rollups import ReadPlan
from api.queries.selection.conditions import Conditions
from api.queries.selection.selection import Selection
from api.queries.stacks.whole_sums import PLAIN_STACK

_SUMS_OF_FLOATS = "toInt64(round(sum({0})))"
_SUMS = "sum({0})"


def total_of(selection: Selection, column: str) -> str:
    """Returns the expression that adds up a column of values of a selection, as a whole number."""
    return (_SUMS_OF_FLOATS if selection.is_gauge else _SUMS).format(column)


def averaged_stacks(plan: ReadPlan, selection: Selection) -> tuple[str, Conditions]:
    """Returns what to read instead of `samples`, and its conditions: the sum of its values is the average over time.

    A profile is what a series has at one time. A series counts with the average of its profiles. A series that existed
    during a part of the time only, such as a pod that was replaced, counts with the share of its time in the time that
    has any profiles. Its time is its number of profiles times the time between two of them; a series with a single
    profile takes that time from the other series.

    `plan`: of GAUGE_DAYS and samples.
    """
    parameters: dict[str, Any] = {}
    sums, profiles = [], []
    for part in plan.parts:
        where = part.conditions(selection, parameters).where
        sums.append(f"SELECT series_id, stack_id, value, count FROM gauge_stack_days {where}")
        profiles.append(f"SELECT series_id, profiles, first_time, last_time FROM gauge_days {where}")
    for each in selection.alternatives(plan.samples, parameters):
        sums.append(f"SELECT series_id, {PLAIN_STACK}, value, toInt64(count) AS count FROM samples {each.where}")
        profiles.append(f"{_PROFILES} {each.where} GROUP BY series_id")
    weights = _WEIGHTS.format(profiles=" UNION ALL ".join(profiles))
    found = (
        "SELECT series_id, stack_id, sum(value) AS sum_of_values, sum(count) AS sum_of_counts"
        f" FROM ({' UNION ALL '.join(sums)}) GROUP BY series_id, stack_id"
    )
    table = (
        "(SELECT series_id, stack_id, sum_of_values * weight AS value, sum_of_counts AS count"
        f" FROM ({found}) AS found INNER JOIN ({weights}) AS weights USING (series_id))"
    )
    return table, Conditions(parameters=parameters)


_PROFILES = """
SELECT series_id, uniqExact(time) AS profiles, min(time) AS first_time, max(time) AS last_time FROM samples"""
# A series that lacks less than two profiles counts as there all the time, as profiles do not begin with the range.
_WEIGHTS = """
SELECT series_id, if(gap = 0 OR longest < extent + 2 * gap, 1, extent / longest) / profiles AS weight
FROM
(
    SELECT *, toFloat64(max(last) OVER () - min(first) OVER ()) + avg(gap) OVER () AS all,
        greatest(toFloat64(max(extent) OVER ()), all) AS longest
    FROM
    (
        SELECT *, coalesce(own_gap, avg(own_gap) OVER (), 0) AS gap, gap * profiles AS extent
        FROM
        (
            SELECT series_id, sum(of_part.profiles) AS profiles,
                toUnixTimestamp64Milli(min(first_time)) AS first, toUnixTimestamp64Milli(max(last_time)) AS last,
                if(profiles > 1, (last - first) / (profiles - 1), NULL) AS own_gap
            FROM ({profiles}) AS of_part GROUP BY series_id
        )
    )
)"""
