"""Reads which builds of rollups are valid."""

from clickhouse_connect.driver.client import Client

from icestream.rollups import BUILDS_SQL, CHANGED_HOURS_SQL, Level, bucket_parameters, valid_builds


def read_valid_builds(client: Client, level: Level, start_unix_s: int, end_unix_s: int) -> dict[int, int]:
    """Returns the number of the build to read of each bucket that lies in or reaches into a time range, by the bucket's
    start, in order; of buckets that have one. Raises the client's errors."""
    parameters = bucket_parameters(level, start_unix_s, end_unix_s)
    rows = client.query(BUILDS_SQL, parameters=parameters).result_rows
    changes = {row[0]: row[1] for row in client.query(CHANGED_HOURS_SQL, parameters=parameters).result_rows}
    of_level = [(start, number, final, known) for name, start, number, final, known in rows if name == level.name]
    valid = valid_builds(of_level, changes, level)
    return {start: build.number for start, build in valid.items()}
