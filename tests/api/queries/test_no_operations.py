"""Questions about operations cost nothing where nobody traces."""

import pytest

from api.errors import ApiError
from api.queries.database import Database
from api.queries.operations.operations import read_operations
from api.settings import ApiSettings
from tests.api.queries.rollup_store import DAY, T0, Store, select
from tests.data.tables import NO_SPAN, insert_rows, to_datetime

TWO_DAYS = select((), T0, T0 + 2 * DAY)
SAMPLES = 300
SPAN = {
    "trace_id": b"t" * 16, "span_id": b"s" * 8, "parent_span_id": NO_SPAN, "name": "GET /", "service": "cart",
    "host_id": "a", "operation": "GET /", "start_time": to_datetime(T0 - 3600), "end_time": to_datetime(T0 - 3000),
}  # fmt: skip


def test_samples_are_read_only_where_something_tells_of_operations(store: Store) -> None:
    store.add(SAMPLES)
    reads_few_rows = Database(store.clients, ApiSettings(api_max_rows=SAMPLES // 2))
    assert read_operations(reads_few_rows, TWO_DAYS).all == []
    insert_rows(store.client, "spans", [SPAN])  # before the range: it may have samples in it
    with pytest.raises(ApiError, match="reads more rows"):
        read_operations(reads_few_rows, TWO_DAYS)
