"""`icestream query` against a real server."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client

from api.http.app import create_app
from api.settings import ApiSettings
from api.terminal.draw import draw_completeness
from icestream.cli import main
from icestream.clickhouse.client import Clients
from icestream.http.server import Server
from icestream.times import format_unix_nano
from tests.api.conftest import RANGE
from tests.api.fill import START_S, Frame, Sample, fill, frame
from tests.api.queries.operations_data import Request, insert_requests
from tests.api.queries.two_versions import COSTS, SLOWER, Version, insert_versions
from tests.data.tables import insert_rows, to_datetime
from tests.go import needs_go
from tests.shared_routes import with_built_routes
from tests.waiting import PATIENCE_S

MAIN, HOT, EVIL = frame("main"), frame("hot"), frame("\x1b[31mred")
AT = format_unix_nano((START_S + 1) * 10**9)
TIMES = ["--start", RANGE["start"], "--end", RANGE["end"]]


@pytest.fixture
def url(engine: str, database: str, client: Client) -> Iterator[str]:
    fill(client, [Sample((MAIN, HOT), trace_id=b"a" * 16, span_id=b"s" * 8)] * 3 + [Sample((MAIN, EVIL))])
    letter = {"time": to_datetime(START_S + 1), "host_id": "host-1", "topic": "icestream.raw", "error": "\x1b[31mred"}
    insert_rows(client, "dead_letters", [letter])
    settings = ApiSettings()
    app = with_built_routes(create_app(settings, Clients(engine, database=database)), settings)
    server = Server(app, "127.0.0.1:0")
    server.start()
    yield f"http://{server.address}"
    server.close()


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["query", *arguments]) == 0
    return capsys.readouterr().out


def test_a_terminal_gets_no_control_characters_in_any_format(
    url: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(client, [Sample((MAIN, frame("\x9b31m\u202eder")))])  # what some terminals take for ESC [31m; right to left
    for text_format in ("collapsed", "jsonl"):
        leader, follower = os.openpty()
        with open(follower, "w") as terminal:
            monkeypatch.setattr(sys, "stdout", terminal)
            assert main(["query", "merge", "--url", url, "--format", text_format, *TIMES]) == 0
            shown = os.read(leader, 10000).decode()
        os.close(leader)
        assert "?31m?der" in shown
        assert all(line.isprintable() for line in shown.splitlines())


def test_a_merge_is_drawn_as_a_tree(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = ask(capsys, "merge", "--url", url, *TIMES)
    assert out.splitlines() == [
        "{}: 40 ms in 4 samples, 2 stacks",
        "100.0% ██████████     40 ms  total",
        "100.0% ██████████     40 ms   main",
        " 75.0% ████████··     30 ms    hot",
        " 25.0% ██········     10 ms    ?[31mred",
    ]


def test_of_gauges_it_says_that_they_are_averaged(url: str, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    kind = "goroutines:goroutine:count:goroutine:count"
    profiles = [Sample((MAIN,), value, time_s=START_S + at, profile_type=kind) for value, at in ((6, 1), (8, 16))]
    fill(client, profiles)
    for question in ("merge", "top", "timeline"):
        head = ask(capsys, question, "--url", url, *TIMES, "--profile-type", kind).splitlines()[0]
        assert head.startswith("{}, averaged over time"), question
    assert "averaged" not in ask(capsys, "merge", "--url", url, *TIMES)


def test_tables_of_functions_and_requests_are_printed(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    top = ask(capsys, "top", "--url", url, *TIMES).splitlines()
    assert top[2].split() == ["30", "ms", "75.0%", "30", "ms", "75.0%", "hot", "checkout"]
    traces = ask(capsys, "traces", "--url", url, *TIMES).splitlines()
    interval = ["6.03", "ms", "87.7", "ms"]
    assert traces[1].split() == ["30", "ms", "30", "ms", *interval, "3", "61" * 16, "checkout"]
    trace = ask(capsys, "trace", "61" * 16, "--url", url)
    assert "73" * 8 in trace
    assert "hot" in trace
    assert "30 ms sampled CPU (95 %: 6.03 ms to 87.7 ms) in 3 samples" in trace
    command = next(line for line in trace.splitlines() if "icestream query merge" in line)
    assert (
        ask(capsys, *shlex.split(command)[2:], "--url", url).splitlines()[0].startswith('{service="checkout"}: 40 ms')
    )


def test_a_listed_request_has_its_start_and_duration(
    url: str, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    insert_requests(client, [Request(2, "GET /b", cpu_ns=90_000_000)])
    head, first, *_ = ask(capsys, "traces", "--url", url, *TIMES).splitlines()
    at = head.index("samples") + len("samples")
    assert head[at:].split()[:2] == ["start", "duration"]
    assert first[at:].split()[:3] == [format_unix_nano((START_S + 60) * 10**9), "50", "ms"]


def test_operations_are_printed_with_what_is_unattributed(
    url: str, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "tracing" in ask(capsys, "operations", "--url", url, *TIMES)
    insert_requests(client, [Request(1, "GET /\x1b[31mred", service="checkout"), Request(2, "GET /b", samples=3)])
    rows = [line.split() for line in ask(capsys, "operations", "--url", url, *TIMES, "--order", "name").splitlines()]
    assert [row[-2:] for row in rows[1:]] == [
        ["GET", "/?[31mred"], ["GET", "/b"], ["checkout", "(unattributed)"],
    ]  # fmt: skip
    assert rows[2][0] == "1"
    assert rows[2][4:9] == ["20", "ms", "30", "ms", "100.0%"]
    limited = ask(capsys, "operations", "--url", url, *TIMES, "--limit", "1")
    assert limited.splitlines()[-1] == "1 more"


def test_lists_of_requests_are_merged_and_compared(
    url: str, client: Client, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fill(client, [Sample((MAIN, EVIL), trace_id=b"b" * 16)])
    slow, fast = tmp_path / "slow", tmp_path / "fast.json"
    slow.write_text(ask(capsys, "traces", "--url", url, *TIMES, "--limit", "1"))
    fast.write_text(f'{{"traces": [{{"trace_id": "{"62" * 16}"}}]}}')
    merged = ask(capsys, "merge", "--url", url, "--traces", str(slow))
    assert merged.splitlines()[0] == "{}: 30 ms in 3 samples, 1 stacks"
    compared = ask(capsys, "diff", "--url", url, "--traces", str(slow), "--baseline-traces", str(fast))
    assert "100.0%   0.0%      ~    hot" in compared
    assert main(["query", "diff", "--url", url, "--traces", str(slow)]) == 1
    assert "--baseline-traces" in capsys.readouterr().err


def test_what_slow_requests_do_is_printed(url: str, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    fast = [Request(i, "GET /b", duration_ns=i * 10**6) for i in range(1, 21)]
    insert_requests(client, [*fast, Request(30, "GET /b", duration_ns=10**9, samples=5)])
    selector = ["--selector", '{service="shop", operation="GET /b"}', "--measure", "duration"]
    lines = ask(capsys, "slow", "--url", url, *TIMES, *selector).splitlines()
    assert lines[0] == "slow: 2 requests of 510 ms and 20 ms CPU on average"
    assert lines[3].split() == ["30", "ms", "10", "ms", "30", "ms", "10", "ms", "hot", "checkout"]


def test_a_timeline_is_printed_with_a_column_for_each_group(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = ask(capsys, "timeline", "--url", url, *TIMES, "--step", "30m", "--sum-by", "service").splitlines()
    assert out[1].split() == ["start", "service=checkout"]
    assert [line.split()[1:] for line in out[2:]] == [["40", "ms"], ["0"]]


def test_a_sandwich_is_drawn_as_two_trees(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(capsys, "sandwich", "hot", "--url", url, *TIMES).splitlines() == [
        "{}: hot is in 30 ms (75.0%), 3 samples",
        "",
        "called by:",
        "100.0% ██████████     30 ms  total",
        "100.0% ██████████     30 ms   hot",
        "100.0% ██████████     30 ms    main",
        "",
        "calls:",
        "100.0% ██████████     30 ms  total",
        "100.0% ██████████     30 ms   hot",
    ]


def test_views_of_frames_are_options(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    def names(*options: str) -> list[str]:
        return [line.split()[-1] for line in ask(capsys, *options, "--url", url, *TIMES).splitlines()[1:]]

    assert names("merge", "--invert", "--hide", "red$") == ["total", "hot", "main", "main"]
    assert names("merge", "--group-by", "service")[1] == "checkout"
    assert names("merge", "--by", "line", "--frames", "own")[1] == "main:10"
    assert names("merge", "--by", "module") == ["total", "/usr/bin/checkout"]
    assert names("top", "--by", "file", "--ignore", "red$")[1:] == ["hot.c", "main.c"]


def test_holes_are_printed(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = ask(capsys, "completeness", "--url", url, *TIMES)
    with pytest.raises(SystemExit):
        main(["query", "completeness", "--profile-type", "process_cpu:cpu:nanoseconds:cpu:nanoseconds"])
    assert out.splitlines()[0] == "0 windows of 0 hosts: it is not known how much CPU is missing"
    assert out.splitlines()[2].split() == ["1", "dead_letters", "host-1", *[AT] * 2, "icestream.raw:", "?[31mred"]


def test_nothing_is_known_of_a_range_in_which_no_host_sent() -> None:
    answer = {"windows": 0, "hosts": 0, "holes": [], "complete": True, "known_from": None}
    assert draw_completeness(answer) == "0 windows of 0 hosts: nothing is known of this range"


def test_a_diff_shows_points(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    empty = '{service="none"}'
    out = ask(capsys, "diff", "--url", url, *TIMES, "--baseline-selector", "{}", "--selector", empty)
    assert "0.0%  75.0%  -75.0    hot" in out
    few = ask(capsys, "diff", "--url", url, *TIMES, "--baseline-selector", "{}", "--focus", "hot")
    assert "(~: the samples do not support a change)" in few
    assert "100.0% 100.0%      ~    hot" in few


def test_functions_of_one_name_have_their_module_beside_it(
    url: str, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    works = [Frame(("work",), 0x10, f"/opt/{name}", f"gnu:{name}", source=f"{name}.c") for name in ("shop", "cart")]
    scripts = [Frame(("run",), at, "[python]", "", 4, source=f"/srv/{at}.py") for at in (1, 2)]
    fill(client, [Sample((*works, *scripts), labels={"service": "names"})])
    out = ask(capsys, "merge", "--url", url, *TIMES, "--selector", '{service="names"}')
    drawn = [line.split("  ", 1)[1].split(" ms ")[-1].strip() for line in out.splitlines()[1:]]
    assert drawn == ["total", "work (shop)", "work (cart)", "run (1.py)", "run (2.py)"]


def test_a_gate_tells_by_its_exit_code(url: str, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    slow, rest = frame("slow"), frame("rest")
    for version, samples in (("1.3", {slow: 100, rest: 900}), ("1.4", {slow: 300, rest: 700})):
        for part, count in samples.items():
            fill(client, [Sample((MAIN, part), 10_000_000 * count, count, labels={"version": version})])
    sides = ["--baseline-selector", '{version="1.3"}', "--selector", '{version="1.4"}']
    command = ["query", "diff", "--url", url, *TIMES, *sides, "--fail-over"]
    assert main([*command, "5%"]) == 3
    out = capsys.readouterr().out
    assert "FAILED: 1 rows of functions grew by more than 5 %" in out
    assert "10.0  30.0  +20.0 (+15." in out
    assert main([*command, "30%"]) == 0
    assert "passed" in capsys.readouterr().out
    assert main([*command, "5", "--json"]) == 3
    answer = json.loads(capsys.readouterr().out)
    assert answer["failed"]
    assert [change["name"] for change in answer["changes"]] == ["slow"]
    with pytest.raises(SystemExit):
        main([*command, "much"])
    assert "expected a percentage" in capsys.readouterr().err


def test_a_gate_by_requests_fails_for_an_operation_that_costs_more(
    url: str, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    insert_versions(client, Version(COSTS, 0), Version(SLOWER, 240))
    now, later = (str(START_S + at_s) for at_s in (240, 420))
    baseline = ["--baseline-start", str(START_S), "--baseline-end", str(START_S + 180)]
    question = ["--url", url, "--start", now, "--end", later, *baseline]
    gate = ["query", "diff", *question, "--compare", "request", "--fail-over"]
    assert main([*gate, "5%"]) == 3
    out = capsys.readouterr().out
    assert "FAILED: 1 operations use more CPU a request, by more than 5 %" in out
    assert "nearly all in price_rules." in out
    assert main([*gate, "25%"]) == 0
    assert capsys.readouterr().out.startswith("passed")
    assert main([*gate, "5%", "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["over"] == ["GET /checkout"]
    assert main([*gate, "5%", "--focus", "hash"]) == 1
    assert "--focus is not for comparing what a request costs" in capsys.readouterr().err
    assert main([*gate, "5%", "--selector", '{service="none"}']) == 1
    assert "no operation could be compared: There were no requests" in capsys.readouterr().err
    drawn = ask(capsys, "operations", *question).splitlines()
    row = next(line.split() for line in drawn if line.startswith("changed"))
    assert row[:5] == ["changed", "2000", "2000", "11.1", "11.1"]
    sure = [line.split()[-2:] for line in drawn if " *  " in line]
    assert sure == [["price_rules", "[python]"]]


@needs_go
def test_go_asks_the_api_for_a_profile(url: str, client: Client, tmp_path: Path) -> None:
    fill(client, [Sample((frame("main"), Frame((), 0x77, "/lib/libc.so.6")))])  # one without a name
    address = f"{url}/api/v1/merge?format=pprof&start={START_S}&end={START_S + 60}"
    pprof = ["go", "tool", "pprof", "-top", address]
    result = subprocess.run(
        pprof, env=os.environ | {"PPROF_TMPDIR": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert " main" in result.stdout


def test_json_and_files_are_the_answer_of_the_api(url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert json.loads(ask(capsys, "merge", "--url", url, "--json", *TIMES))["total"] == 40_000_000
    path = tmp_path / "p.pb.gz"
    ask(capsys, "merge", "--url", url, "--format", "pprof", "--output", str(path), *TIMES)
    assert path.read_bytes()[:2] == b"\x1f\x8b"
    drawn = tmp_path / "drawn"
    assert main(["query", "merge", "--url", url, "--output", str(drawn), *TIMES]) == 1
    assert "--output: give --format as well" in capsys.readouterr().err
    assert not drawn.exists()


def test_what_is_wrong_is_one_line_and_exit_code_1(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", "merge", "--url", url, "--selector", "{service=}"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("icestream query: selector: at character 10: expected a value in quotes")
    assert main(["query", "merge", "--url", "http://127.0.0.1:1"]) == 1
    assert "is `icestream up` or `icestream api` running there?" in capsys.readouterr().err


@pytest.mark.slow
def test_the_api_command_serves_and_ends_on_a_signal(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "icestream.cli",
        "api",
        "--clickhouse",
        f"chdb://{tmp_path}/db",
        "--listen",
        "127.0.0.1:0",
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = next(line for line in process.stderr if "http://" in line)
    address = line[line.index("http://") :].strip()
    ready = subprocess.run(
        [sys.executable, "-c", f"import urllib.request; urllib.request.urlopen('{address}/readyz')"],
        capture_output=True,
    )
    assert b"503" in ready.stderr
    process.terminate()
    assert process.wait(PATIENCE_S) == 0
