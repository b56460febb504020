import pytest
from clickhouse_connect.driver.client import Client

from tests.api.conftest import Api
from tests.api.fill import Frame, Sample, fill, frame, stack_id

MAIN, OUTER, BARE = frame("main"), Frame(("inlined", "outer"), 0x10), Frame((), 0x77, "/lib/libc.so.6")


def test_stack_ids_are_named_root_first(api: Api, client: Client) -> None:
    stacks = [(MAIN, OUTER), (MAIN, BARE), ()]
    fill(client, [Sample(stack) for stack in stacks])
    ids = [f"{stack_id(stack):016x}" for stack in stacks]
    unknown = "00000000000000ff"
    answer = api.http.get("/api/v1/stacks", params={"ids": ",".join([*ids, unknown])}).json()
    assert answer == {
        "stacks": [
            {"stack_id": ids[0], "functions": ["main", "outer", "inlined"], "modules": ["/usr/bin/checkout"] * 3},
            {
                "stack_id": ids[1],
                "functions": ["main", "[libc.so.6]"],
                "modules": ["/usr/bin/checkout", "/lib/libc.so.6"],
            },
            {"stack_id": ids[2], "functions": ["[no stack]"], "modules": [""]},
        ],
        "unknown": [unknown],
    }


@pytest.mark.parametrize("ids", ["", "1", "x" * 16, f"{'0' * 16},", "1" * 32, "0x00000000000000"])
def test_what_is_no_stack_id_is_refused(api: Api, ids: str) -> None:
    answer = api.http.get("/api/v1/stacks", params={"ids": ids})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_parameter")
