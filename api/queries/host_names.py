"""The names of hosts, which batches know by their IDs only: their label `host`."""

from collections.abc import Sequence

from api.queries.database import Database, texts
from api.queries.runs import near
from api.queries.selection.conditions import Conditions, add_time
from api.queries.selection.time_range import TimeRange

_MOST = 20


def read_host_names(database: Database, time_range: TimeRange, host_ids: Sequence[str]) -> dict[str, str]:
    """Returns names by ID, of the first few hosts, if they have samples in the time range or near it.

    One sample of each says it: the query ends when it has found them.
    """
    conditions = Conditions()
    add_time(conditions, near(time_range))
    asked = list(dict.fromkeys(host_ids))[:_MOST]
    if not asked:
        return {}
    conditions.add(f"host_id IN {conditions.bind(asked, 'Array(String)')}")
    answer = database.table(
        "SELECT toString(host_id) AS host_id, label FROM"
        f" (SELECT host_id, series_id FROM samples {conditions.where} LIMIT 1 BY host_id LIMIT {len(asked)}) AS of_host"
        " INNER JOIN (SELECT series_id, any(toString(labels['host'])) AS label FROM series GROUP BY series_id) AS named"
        " USING (series_id)",
        conditions.parameters,
    )
    return dict(zip(texts(answer["host_id"]), texts(answer["label"]), strict=True))
