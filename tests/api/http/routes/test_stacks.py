import io

import pytest
from clickhouse_connect.driver.client import Client
from google.protobuf import proto

from icestream.messages.stack_names import StackNames
from icestream.messages.stacks import decode_stacks
from icestream.v1.stacks_pb2 import StackBatch
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


def test_stacks_are_given_as_announcements(api: Api, client: Client) -> None:
    """For consumers that missed those on icestream.stacks."""
    stacks = [(MAIN, OUTER), (MAIN, BARE), ()]
    fill(client, [Sample(stack) for stack in stacks])
    ids = [*(stack_id(stack) for stack in stacks), 255]
    asked = {"ids": ",".join(f"{each:016x}" for each in ids), "format": "protobuf"}
    data, names = io.BytesIO(api.http.get("/api/v1/stacks", params=asked).content), StackNames()
    while message := proto.parse_length_prefixed(StackBatch, data):
        columns = decode_stacks(message.SerializeToString())
        assert len(columns.node_id) == len(columns.location_id) == 3
        names.learn(columns)
    assert [names.frames(each) for each in ids] == [["inlined", "outer", "main"], ["libc.so.6+0x77", "main"], [], []]
