from clickhouse_connect.driver.client import Client

from tests.api.conftest import Api
from tests.api.fill import Sample, fill, frame

MAIN = frame("main")


def test_profile_types_are_listed(api: Api, client: Client) -> None:
    assert api.json("/api/v1/profile-types") == {"profile_types": []}
    other = "memory:alloc_space:bytes:space:bytes"
    fill(client, [Sample((MAIN,)), Sample((MAIN,), profile_type=other)])
    profile_types = api.json("/api/v1/profile-types")["profile_types"]
    assert [t["id"] for t in profile_types] == [other, "process_cpu:cpu:nanoseconds:cpu:nanoseconds"]
    assert profile_types[0]["sample_unit"] == "bytes"
    assert api.json("/api/v1/merge", profile_type=other)["unit"] == "bytes"
