"""`icestream collect --check`: what works here, in words and as JSON; and what it would say on other hosts."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from collector.checks import budget, containers, kernel, privileges, programs, report, resources
from collector.checks.budget import Seen
from collector.checks.row import CheckMark, CheckRow, limited, missing, ok
from collector.delivery.spool import Spool
from collector.guest.budget import BudgetLimits
from collector.guest.capabilities import Capability
from collector.settings import CollectorSettings
from icestream.settings import KafkaSettings

ICESTREAM = Path(sys.executable).parent / "icestream"
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "--no-new-privs"]


def settings(folder: Path, **more: Any) -> CollectorSettings:
    return CollectorSettings(
        spool=folder / "spool", activity_socket=folder / "run/activity.sock", kafka="127.0.0.1:1", **more
    )


def checked(folder: Path, *flags: str, before: list[str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [
        *(before or []), str(ICESTREAM), "collect", "--check", "--kafka", "127.0.0.1:1", "--spool", f"{folder}/spool",
        "--activity-socket", f"{folder}/run/activity.sock", "--metrics-listen", "", *flags,
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd="/", check=False)


@pytest.mark.ebpf
def test_on_this_host_profiling_works_and_the_check_leaves_nothing_behind(tmp_path: Path) -> None:
    done = checked(tmp_path, "--cpu-budget", "0")  # nothing to measure; the next test does
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    assert any(line.startswith("ok       profiling") and "was loaded and ran on" in line for line in lines)
    assert any(line.startswith("limited  Kafka") for line in lines)
    assert lines[-1].startswith("this host can be profiled; limited: ")
    assert max(map(len, lines)) <= 110
    assert list(tmp_path.iterdir()) == []


@pytest.mark.ebpf
def test_as_json_it_is_one_object(tmp_path: Path) -> None:
    done = checked(tmp_path, "--json")
    answer = json.loads(done.stdout)
    assert answer["works"] is True
    rows = {row["thing"]: row for row in answer["checks"]}
    assert rows["kernel"]["mark"] == "ok"
    assert rows["Kafka"] == {
        "thing": "Kafka", "mark": "limited", "says": rows["Kafka"]["says"],
        "advice": "set its address with --kafka HOST:PORT", "needed": False,
    }  # fmt: skip
    assert set(report.CHECKS) - {"capabilities"} <= set(rows)
    assert not any("itself failed" in row["says"] for row in rows.values())
    assert {"BTF", "CAP_BPF", "CAP_PERFMON", "process events", "spool", "activity socket", "cgroups"} <= set(rows)


@pytest.mark.ebpf
def test_who_has_no_privileges_is_told_which_and_what_to_do(tmp_path: Path) -> None:
    done = checked(tmp_path, before=NOBODY)
    assert done.returncode == 1
    assert "missing  CAP_BPF                not held: the eBPF program cannot be loaded" in done.stdout
    assert "-> run as root, or with AmbientCapabilities=CAP_PERFMON in the unit" in done.stdout
    assert "missing  profiling" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("this host cannot be profiled: ")
    answer = json.loads(checked(tmp_path, "--json", before=NOBODY).stdout)
    assert answer["works"] is False
    rows = {row["thing"]: row for row in answer["checks"]}
    assert (rows["profiling"]["mark"], rows["profiling"]["needed"]) == ("missing", True)
    assert rows["CAP_SYS_PTRACE"]["mark"] == "limited"


def test_the_cpu_budget_says_what_a_host_carries() -> None:
    small, large = BudgetLimits(49, 2.0, 25), BudgetLimits(49, 64.0, 25)
    quiet = budget.row(small, 2, Seen(10e-6, 1.0, 0.0))
    assert quiet.mark is CheckMark.OK
    assert quiet.says.endswith("the budget is 2 %, enough for 154")
    starting = budget.row(small, 2, Seen(10e-6, 50.0, 0.0))
    assert starting.mark is CheckMark.LIMITED
    assert "about 2.6 % of a CPU" in starting.says
    assert starting.says.endswith("sample 49 times or more often")
    slow = budget.row(small, 2, Seen(1e-3, 1.0, 0.0))
    assert slow.says.endswith("sample 9 times, below the lowest frequency of 25")
    assert budget.row(large, 64, Seen(10e-6, 100.0, 50.0)).mark is CheckMark.OK


def test_the_cpu_budget_says_what_a_build_takes_when_all_is_put_off() -> None:
    """As measured with `python -m benchmarks.collector --loads c_build`: nearly each sample is of a new process."""
    building = budget.row(BudgetLimits(19, 2.0, 10), 2, Seen(10e-6, 165.0, 30.0))
    assert building.mark is CheckMark.LIMITED
    assert "about 7.2 % of a CPU" in building.says
    assert building.says.endswith("put off work, sample 10 times, and take about 3.1 % all the same")
    assert "sample 19 times" in budget.row(BudgetLimits(19, 4.0, 10), 2, Seen(10e-6, 165.0, 30.0)).says


def test_json_without_check_is_refused(tmp_path: Path) -> None:
    done = subprocess.run([ICESTREAM, "collect", "--json"], capture_output=True, text=True, timeout=120, check=False)
    message = "icestream collect: --json is only for --check: give both, or neither\n"
    assert (done.returncode, done.stderr) == (1, message)


@pytest.mark.parametrize(
    ("release", "mark", "needed"),
    [
        ("4.18.0-553.el8_10.x86_64", CheckMark.MISSING, True),
        ("5.4.0-200-generic", CheckMark.MISSING, True),
        ("5.10.0-30-amd64", CheckMark.LIMITED, False),
        ("5.15.0-1071-aws", CheckMark.OK, False),
        ("6.18.44", CheckMark.OK, False),
    ],
)
def test_kernels_are_told_by_their_age(release: str, mark: CheckMark, needed: bool) -> None:
    row = kernel.version(release)
    assert (row.mark, row.needed) == (mark, needed)
    assert release in row.says


def write(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def test_a_kernel_without_btf_needs_the_other_loader(tmp_path: Path) -> None:
    row = kernel.btf("libbpf", tmp_path)
    assert (row.mark, row.needed) == (CheckMark.MISSING, True)
    assert "--loader auto" in row.advice
    assert kernel.btf("bcc", tmp_path).mark is CheckMark.OK


@pytest.mark.parametrize(
    ("modes", "mark"),
    [
        ("none integrity [confidentiality]\n", CheckMark.MISSING),
        ("none [integrity] confidentiality\n", CheckMark.OK),
        ("[none] integrity confidentiality\n", CheckMark.OK),
    ],
)
def test_a_locked_down_kernel_is_recognised(tmp_path: Path, modes: str, mark: CheckMark) -> None:
    assert kernel.lockdown(write(tmp_path, {"sys/kernel/security/lockdown": modes})).mark is mark


def test_what_the_kernel_hides_is_said_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write(
        tmp_path,
        {
            "proc/kallsyms": "0000000000000000 T _stext\n",
            "proc/sys/kernel/kptr_restrict": "2\n",
            "proc/sys/kernel/yama/ptrace_scope": "3\n",
            "proc/sys/kernel/perf_event_paranoid": "4\n",
        },
    )
    assert "kptr_restrict is 2" in kernel.symbols(root).says
    assert kernel.ptrace_scope(root).mark is CheckMark.LIMITED
    monkeypatch.setattr(kernel, "permitted", frozenset)
    assert kernel.perf_event_paranoid(root).needed
    write(root, {"proc/sys/kernel/perf_event_paranoid": "-1\n"})
    assert kernel.perf_event_paranoid(root).mark is CheckMark.OK
    assert "CONFIG_PERF_EVENTS" in kernel.perf_event_paranoid(root / "nowhere").advice


def test_sys_admin_stands_for_the_capabilities_that_came_out_of_it() -> None:
    rows = {row.thing: row.mark for row in privileges.capabilities(frozenset({Capability.SYS_ADMIN}))}
    assert {thing for thing, mark in rows.items() if mark is CheckMark.OK} == {
        "CAP_PERFMON", "CAP_BPF", "CAP_SYSLOG", "CAP_CHECKPOINT_RESTORE",
    }  # fmt: skip


def test_inside_a_container_it_says_what_is_wrong(tmp_path: Path) -> None:
    write(tmp_path, {"status": "Seccomp:\t2\n", "uid_map": "         0     100000      65536\n", "pid": ""})
    assert privileges.seccomp(tmp_path / "status").mark is CheckMark.LIMITED
    assert privileges.user_namespace(tmp_path / "uid_map").needed
    row = privileges.pid_namespace(tmp_path / "pid")
    assert (row.mark, row.needed) == (CheckMark.MISSING, True)
    assert "hostPID" in row.advice


@pytest.mark.parametrize(
    ("mounts", "says"),
    [
        ("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n", "version 2"),
        ("cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\n", "version 1:"),
        ("proc /proc proc rw 0 0\n", "none is mounted"),
    ],
)
def test_versions_of_cgroups_are_told(tmp_path: Path, mounts: str, says: str) -> None:
    assert says in containers.cgroups(write(tmp_path, {"mounts": mounts}) / "mounts").says


def test_aarch64_lacks_frames_of_java_and_node() -> None:
    assert programs.unwinding("x86_64").mark is CheckMark.OK
    row = programs.unwinding("aarch64")
    assert row.mark is CheckMark.LIMITED
    assert "Java and Node" in row.says


def test_places_that_cannot_be_used_are_told_by_what_it_means(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    beneath = settings(tmp_path / "file")
    assert resources.spool(beneath).mark is CheckMark.LIMITED
    assert resources.activity_socket(beneath).needed
    assert resources.metrics_listen(settings(tmp_path, metrics_listen="nonsense")).needed
    assert resources.metrics_listen(settings(tmp_path, metrics_listen="127.0.0.1:0")).mark is CheckMark.OK
    assert "the limit of 1048576 MB" in resources.spool(settings(tmp_path, spool_limit_mb=1 << 20)).says
    taken = settings(tmp_path, metrics_listen="")
    (tmp_path / "run").mkdir()
    taken.activity_socket.write_text("")
    assert "is no socket" in resources.activity_socket(taken).says


def test_a_running_collector_is_told_from_a_fault(tmp_path: Path) -> None:
    running = Spool(tmp_path / "spool", 1 << 20)
    row = resources.spool(settings(tmp_path))
    assert (row.mark, "another collector" in row.says) == (CheckMark.LIMITED, True)
    running.close()
    assert resources.spool(settings(tmp_path)).mark is CheckMark.OK


def test_kafka_that_answers_and_topics_that_are_there(in_process_broker: KafkaSettings, tmp_path: Path) -> None:
    row = resources.kafka(CollectorSettings(kafka=in_process_broker.kafka))
    assert row == ok("Kafka", f"{in_process_broker.kafka} answers and has the topics")


def test_rules_that_cannot_be_read_are_told_before_the_start(tmp_path: Path) -> None:
    row = containers.labels(settings(tmp_path, relabel=str(tmp_path / "nowhere.yml")))
    assert (row.mark, row.needed) == (CheckMark.MISSING, True)


def test_a_kubelet_that_does_not_answer_leaves_pods_without_names(tmp_path: Path) -> None:
    asked = settings(tmp_path, kubernetes="kubelet", kubernetes_url="https://127.0.0.1:1")
    row = containers.kubernetes(asked)
    assert (row.mark, row.needed) == (CheckMark.LIMITED, False)
    assert "127.0.0.1:1" in row.says
    assert containers.kubernetes(settings(tmp_path)).mark is CheckMark.OK


def test_a_check_that_fails_is_a_row_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(settings: CollectorSettings) -> CheckRow:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(report, "CHECKS", {"it": broken, "a": lambda settings: ok("a", "b")})
    found = list(report.rows(settings(tmp_path)))
    assert [row.mark for row in found] == [CheckMark.LIMITED, CheckMark.OK]
    assert (found[0].thing, "ZeroDivisionError: oh" in found[0].says) == ("it", True)


def test_what_is_needed_decides() -> None:
    assert report.works([ok("a", ""), limited("b", ""), missing("c", "")])
    assert not report.works([ok("a", ""), missing("d", "", needed=True)])
    assert report.verdict([missing("d", "", needed=True), missing("e", "")]) == "this host cannot be profiled: d"
    assert report.verdict([ok("a", "")]) == "this host can be profiled"
