"""`icestream lake stacks`: the table has what a walk up the call tree finds, with the newest names."""

import threading
from datetime import date, datetime, timedelta, timezone
from pathlib import Path

import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from icestream.cli import main
from icestream.messages.stack_names import UNKNOWN, StackNames
from icestream.messages.stacks import decode_stacks
from icestream.topics import SAMPLES, STACKS
from icestream.v1.common_pb2 import Mapping
from sinks.lake import stacks as lake_stacks
from sinks.lake.delta import Lake
from sinks.lake.sink import LakeSink
from sinks.lake.stacks import build_stacks, clean
from sinks.lake.upkeep import compact, delete_old_days
from tests.data import messages as builders
from tests.examples import examples
from tests.sinks.lake.test_sink import decoded, write
from tests.sinks.messages import START_MS, stack_batch, tables

pytestmark = pytest.mark.slow  # most tests write a lake
TODAY = datetime.fromtimestamp(START_MS / 1000, timezone.utc).date()


def stacks(folder: Path) -> dict[int, list[str]]:
    rows = DeltaTable(f"{folder}/stacks").to_pyarrow_table()
    assert len(set(rows["stack_id"].to_pylist())) == len(rows)
    return dict(zip(rows["stack_id"].to_pylist(), rows["functions"].to_pylist(), strict=True))


@pytest.fixture
def sink(tmp_path: Path) -> LakeSink:
    """Has samples of the stacks 1 to 7; 1 to 3 have nodes and no names."""
    sink = LakeSink(str(tmp_path))
    write(sink, SAMPLES, 0, *decoded(1, 2, rows=7))
    write(sink, STACKS, 0, tables(STACKS, stack_batch(0, [])), tables(STACKS, stack_batch(1, ["main", "a", "b"])))
    return sink


def test_names_that_come_later_are_in_the_next_build(tmp_path: Path, sink: LakeSink) -> None:
    assert build_stacks(Lake(str(tmp_path))) == 3
    assert stacks(tmp_path) == {1: ["main"], 2: ["main", "a"], 3: ["main", "a", "b"]}
    write(sink, STACKS, 2, tables(STACKS, stack_batch(2, ["main", "newer"])))
    write(sink, STACKS, 3, tables(STACKS, stack_batch(0, [])))
    assert build_stacks(Lake(str(tmp_path))) == 3
    assert stacks(tmp_path) == {1: ["main"], 2: ["main", "newer"], 3: ["main", "newer", "b"]}


def test_upkeep_of_the_sink_leaves_the_table_alone_and_old_builds_go(tmp_path: Path, sink: LakeSink) -> None:
    lake = Lake(str(tmp_path))
    for _ in range(3):
        build_stacks(lake)
    compact(lake, small_files=1)
    delete_old_days(lake, 2, TODAY + timedelta(days=3))
    clean(lake)
    assert len(list((tmp_path / "stacks").glob("*.parquet"))) == 3
    table = DeltaTable(f"{tmp_path}/stacks")
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert len(list((tmp_path / "stacks").glob("*.parquet"))) == 1
    assert len(stacks(tmp_path)) == 3
    assert build_stacks(lake) == 0  # the samples are gone
    assert stacks(tmp_path) == {}


def test_only_stacks_of_samples_since_a_day_if_told(tmp_path: Path, sink: LakeSink) -> None:
    write(sink, SAMPLES, 2, *decoded(40 * 24 * 3600 // 5, rows=2))
    lake = Lake(str(tmp_path))
    assert [build_stacks(lake, day) for day in (None, TODAY, TODAY + timedelta(days=1))] == [3, 3, 2]
    assert set(stacks(tmp_path)) == {1, 2}
    # The names are of February, and so are not read for samples from the third of March on.
    assert [build_stacks(lake, date(2026, 3, day)) for day in (2, 3)] == [2, 0]


def test_the_command_says_what_is_wrong_and_how_many_stacks_there_are(
    tmp_path: Path, sink: LakeSink, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lake", "stacks"]) == 1
    assert "--lake DIR" in capsys.readouterr().err
    assert main(["lake", "stacks", "--lake", str(tmp_path / "none")]) == 1
    assert "no samples with names yet" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["lake", "stacks", "--lake", str(tmp_path), "--since", "yesterday"])
    assert "2026-01-31" in capsys.readouterr().err
    assert main(["lake", "stacks", "--lake", str(tmp_path), "--since", "2026-01-01"]) == 0
    assert capsys.readouterr().out == "3 stacks\n"


def test_several_at_once_leave_one_whole_table(tmp_path: Path, sink: LakeSink) -> None:
    build_stacks(Lake(str(tmp_path)))
    done: list[object] = []

    def build() -> None:
        try:
            done.append(build_stacks(Lake(str(tmp_path))))
        except Exception as error:
            done.append(error)

    threads = [threading.Thread(target=build) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 3 in done, done
    assert len(stacks(tmp_path)) == 3


def test_a_circle_of_nodes_ends(tmp_path: Path) -> None:
    sink = LakeSink(str(tmp_path))
    write(sink, SAMPLES, 0, *decoded(1, rows=2))
    columns = {
        "node_id": [1, 2], "node_parent_id": [2, 1], "node_location_id": [11, 12], "location_id": [11],
        "location_address": [16], "location_version": [0], "location_line_count": [0],
    }  # fmt: skip
    write(sink, STACKS, 0, tables(STACKS, builders.stack_batch(columns, mappings=[Mapping(), Mapping()])))
    assert build_stacks(Lake(str(tmp_path))) == 2
    assert set(stacks(tmp_path)[1]) == {"unknown+0x10", "[unknown]"}


@st.composite
def announcements(draw: st.DrawFn) -> list[bytes]:
    """Call trees of the stacks 1 to 7 whose names get better, and which miss some nodes and locations."""
    parents = [draw(st.integers(0, node - 1)) for node in range(1, 8)]
    kept = draw(st.lists(st.integers(1, 7), min_size=1, unique=True))
    batches = []
    for version in range(draw(st.integers(1, 3))):
        lines = draw(st.lists(st.lists(st.sampled_from(["main", "f", "ü", ""]), max_size=3), min_size=1, max_size=4))
        strings = ["", "main", "f", "ü"]
        flat = [strings.index(name) for names in lines for name in names]
        columns = {
            "node_id": kept, "node_parent_id": [parents[node - 1] for node in kept],
            "node_location_id": [11 + node % 5 for node in kept],
            "location_id": [11 + row for row in range(len(lines))],
            "location_address": [2**63 + row for row in range(len(lines))],
            "location_version": [version] * len(lines), "location_line_count": [len(names) for names in lines],
            "location_mapping": [1] * len(lines),
            "line_function": flat, "line_file": [0] * len(flat), "line_number": flat, "line_start_line": flat,
        }  # fmt: skip
        mappings = [Mapping(), Mapping(kind=Mapping.FILE, build_id="gnu:aa", file="/bin/app")]
        batches.append(builders.stack_batch(columns, strings=strings, mappings=mappings))
    return batches


@settings(max_examples=examples(0.2), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(batches=announcements(), block=st.sampled_from([1, 3, 1000]), merge=st.sampled_from([1, 5, 1000]))
def test_stacks_are_those_of_a_walk_up_the_tree(
    tmp_path_factory: pytest.TempPathFactory, batches: list[bytes], block: int, merge: int
) -> None:
    folder = tmp_path_factory.mktemp("lake")
    sink, names = LakeSink(str(folder)), StackNames()
    write(sink, SAMPLES, 0, *decoded(1, rows=7))
    for offset, batch in enumerate(batches):
        write(sink, STACKS, offset, tables(STACKS, batch))
        names.learn(decode_stacks(batch))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lake_stacks, "_BLOCK_FRAMES", block)
        patch.setattr(lake_stacks, "_MERGE_ROWS", merge)
        build_stacks(Lake(str(folder)))
    known = {row["node_id"] for row in DeltaTable(f"{folder}/nodes").to_pyarrow_table().to_pylist()}
    located = {row["location_id"] for row in DeltaTable(f"{folder}/locations").to_pyarrow_table().to_pylist()}
    assert set(stacks(folder)) == known
    for stack_id, functions in stacks(folder).items():
        known_names = [name for name in names.frames(stack_id)[::-1] if name != UNKNOWN]
        assert [name for name in functions if name != "[unknown]"] == known_names
        assert ("[unknown]" in functions) <= (located != set(range(11, 16)))
