"""format=pgo: `go build -pgo` builds with it."""

import gzip
import subprocess
from pathlib import Path

from clickhouse_connect.driver.client import Client

from icestream.pprof.profile_pb2 import Profile
from tests.api.conftest import Api
from tests.api.fill import SEEN, Frame, Sample, fill, frame, insert_nodes, insert_samples
from tests.data.tables import insert_rows
from tests.go import needs_go

# A package without imports: `go build -pgo` builds the packages that a program imports again as well.
PROGRAM = """package app

func mix(x uint64) uint64 {
	for i := 0; i < 3; i++ {
MIXED	}
	return x
}

func Run() uint64 {
	x := uint64(1)
	for i := 0; i < 1000000; i++ {
		x = mix(x)
	}
	return x
}
""".replace("MIXED", 12 * "\t\tx ^= x << 13\n\t\tx ^= x >> 7\n\t\tx *= 0xBF58476D1CE4E5B9\n")
RUN_LINE = PROGRAM[: PROGRAM.index("func Run")].count("\n") + 1
CALL_LINE = PROGRAM[: PROGRAM.index("x = mix")].count("\n") + 1


def go_frame(address: int, *lines: tuple[str, int, int], build_id: str = "gnu:aa", source: str = "app.go") -> Frame:
    """A location with lines (function, line, first line), innermost first."""
    return Frame(lines, address, "/srv/app", build_id, source=f"/src/app/{source}")  # type: ignore[arg-type]


def insert(client: Client, samples: list[Sample]) -> None:
    insert_samples(client, samples)
    insert_nodes(client, {sample.stack for sample in samples})
    rows = [
        {
            "location_id": part.location_id, "kind": 1, "build_id": part.build_id, "file": part.file, "version": 1,
            "address": part.address, "last_seen": SEEN,
            "lines": [(name, part.source, line, first) for name, line, first in part.functions],  # type: ignore[misc]
        }
        for part in {part for sample in samples for part in sample.stack}
    ]  # fmt: skip
    insert_rows(client, "locations", rows)


def read(api: Api) -> Profile:
    answer = api.get("/api/v1/merge", format="pgo")
    assert answer.status_code == 200, answer.text
    assert "default.pgo" in answer.headers["content-disposition"]
    return Profile.FromString(gzip.decompress(answer.content))


RUN = go_frame(0x10, ("app.Run", CALL_LINE, RUN_LINE))
MIX = go_frame(0x20, ("app.mix", 7, 3))


@needs_go
def test_go_inlines_what_the_profile_says_is_hot(api: Api, client: Client, tmp_path: Path) -> None:
    insert(client, [Sample((RUN, MIX), 10_000_000)] * 50)
    (tmp_path / "app.go").write_text(PROGRAM)
    (tmp_path / "go.mod").write_text("module app\n\ngo 1.21\n")
    (tmp_path / "default.pgo").write_bytes(api.get("/api/v1/merge", format="pgo").content)

    def build(pgo: str) -> str:
        command = ["go", "build", f"-pgo={pgo}", "-gcflags=-m", "."]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 0, done.stderr
        return done.stderr

    assert "inlining call to mix" not in build("off")
    assert "inlining call to mix" in build("default.pgo")


def test_only_frames_of_go_are_left_and_builds_are_joined(api: Api, client: Client) -> None:
    newer = go_frame(0x99, ("app.mix", 7, 3), build_id="gnu:bb")
    kernel = Frame((("do_syscall", 1, 1),), 0x30, "[kernel]", "gnu:cc", 2, "entry.c")  # type: ignore[arg-type]
    inlined = go_frame(0x40, ("app.small", 3, 2), ("app.mix", 10, 3))
    insert(
        client,
        [
            Sample((RUN, MIX), 1),
            Sample((RUN, newer), 2),
            Sample((RUN, kernel, MIX, kernel), 4),
            Sample((RUN, inlined), 8),
            Sample((kernel,), 16),
        ],
    )
    profile = read(api)
    text = profile.string_table
    functions = {f.id: (text[f.name], text[f.filename], f.start_line) for f in profile.function}
    lines = {loc.id: [(functions[each.function_id][0], each.line) for each in loc.line] for loc in profile.location}
    sums = {str([lines[each] for each in sample.location_id]): sample.value[1] for sample in profile.sample}
    outer = [("app.Run", CALL_LINE)]
    assert sums == {
        str([[("app.mix", 7)], outer]): 7,
        str([[("app.small", 3), ("app.mix", 10)], outer]): 8,
    }
    assert set(functions.values()) == {
        ("app.Run", "/src/app/app.go", RUN_LINE),
        ("app.mix", "/src/app/app.go", 3),
        ("app.small", "/src/app/app.go", 2),
    }


def test_a_function_that_moved_between_builds_has_its_lines_at_the_same_distance_from_its_first_line(
    api: Api, client: Client
) -> None:
    newer_run = go_frame(0x98, ("app.Run", CALL_LINE + 40, RUN_LINE + 40), build_id="gnu:bb")
    newer_mix = go_frame(0x99, ("app.mix", 47, 43), build_id="gnu:bb")
    insert(client, [Sample((RUN, MIX), 1), Sample((newer_run, newer_mix), 2)])
    profile = read(api)
    text = profile.string_table
    functions = {f.id: f for f in profile.function}
    assert sorted(text[f.name] for f in functions.values()) == ["app.Run", "app.mix"]
    distances = {
        loc.id: [(text[functions[each.function_id].name], each.line - functions[each.function_id].start_line)
                 for each in loc.line]
        for loc in profile.location
    }  # fmt: skip
    (sample,) = profile.sample
    assert [distances[each] for each in sample.location_id] == [[("app.mix", 4)], [("app.Run", CALL_LINE - RUN_LINE)]]
    assert sample.value[1] == 3


def test_without_functions_of_go_there_is_nothing_to_build_with(api: Api, client: Client) -> None:
    fill(client, [Sample((frame("main"),))])
    answer = api.get("/api/v1/merge", format="pgo")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    assert api.get("/api/v1/merge", format="pgo", hide="x").status_code == 400
