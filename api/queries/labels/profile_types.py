"""Which profile types have samples."""

from api.queries.database import Database, texts
from api.queries.selection.conditions import Conditions

_MAX_TYPES = 200


def read_profile_types(database: Database) -> list[str]:
    """All profile types that ever had samples, in order. Raises ApiError.

    The primary key starts with the profile type, so one query for each finds the next without reading its rows.
    """
    profile_types: list[str] = []
    while len(profile_types) < _MAX_TYPES:
        conditions = Conditions()
        if profile_types:
            conditions.add(f"profile_type > {conditions.bind(profile_types[-1], 'String')}")
        answer = database.table(
            f"SELECT toString(profile_type) AS id FROM samples {conditions.where} ORDER BY profile_type LIMIT 1",
            conditions.parameters,
        )
        if not len(answer):
            break
        profile_types += texts(answer["id"])
    return profile_types
