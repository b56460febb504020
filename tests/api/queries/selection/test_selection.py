from collections import Counter

import pytest
from clickhouse_connect.driver.client import Client

from tests.api.conftest import Api
from tests.api.fill import START_S, Sample, fill, frame
from tests.api.http.routes.test_merge import read_collapsed

DAY = 86_400
MIDNIGHT = START_S // DAY * DAY


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (MIDNIGHT, MIDNIGHT + 3 * DAY),
        (MIDNIGHT + 1, MIDNIGHT + 3 * DAY + 5),
        (MIDNIGHT - 7, MIDNIGHT + 2 * DAY),
        (MIDNIGHT + 100, MIDNIGHT + DAY + 100),
        (MIDNIGHT, MIDNIGHT + DAY - 1),
        (0, 4_000_000_000),
    ],
)
def test_ranges_of_whole_days_take_each_sample_once(api: Api, client: Client, start: int, end: int) -> None:
    times = [MIDNIGHT + d * DAY + s for d in range(-1, 4) for s in (0, 1, 50_000, DAY - 1)]
    samples = [Sample((frame(f"f{i}"),), i + 1, time_s=at, labels={"service": "a"}) for i, at in enumerate(times)]
    fill(client, samples)
    expected = Counter({s.stack[0].names[0]: s.value for s in samples if start <= s.time_s < end})
    text = api.get(
        "/api/v1/merge", start=str(start), end=str(end), format="collapsed", selector='{service=~"a|b"}'
    ).text
    assert read_collapsed(text) == expected
