"""The period of a service where a request has no sample."""

from clickhouse_connect.driver.client import Client

from api.queries.database import Database
from api.queries.selection.time_range import TimeRange
from api.queries.traces.sample_period import read_periods
from api.settings import ApiSettings
from icestream.clickhouse.client import Clients
from icestream.ids import series_id
from icestream.topics import DEFAULT_PROFILE_TYPE
from tests.api.fill import START_S, Sample, insert_samples

IN_RANGE = TimeRange(START_S * 10**9, (START_S + 600) * 10**9)


def test_the_longest_period_of_a_service_is_that_of_any_of_its_hosts(
    client: Client, engine: str, database: str
) -> None:
    series = [{"service": "checkout", "host": host} for host in ("host-1", "host-2")]
    many, few = sorted(series, key=lambda labels: series_id(labels.items()))  # in the order of the table
    samples = [Sample((), 10_000_000, labels=many, time_s=START_S + i / 10) for i in range(1000)]
    insert_samples(client, [*samples, Sample((), 52_000_000, labels=few)])
    settings = ApiSettings()
    asked = Database(Clients(engine, database=database), settings)
    assert read_periods(asked, DEFAULT_PROFILE_TYPE, ["checkout", "cart"], IN_RANGE) == {"checkout": 52_000_000}
