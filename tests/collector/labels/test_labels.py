"""What names a thread's series."""

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from collector.labels.container import Containers
from collector.labels.kubernetes import Pod, Pods, PodSource
from collector.labels.label_config import LabelConfig, label_config
from collector.labels.process_context import ContextReader
from collector.labels.service_name import service_name
from collector.labels.thread_labels import ThreadLabels
from collector.processes.process import Process, read_process
from collector.settings import CollectorSettings
from icestream.labels.excess_labels import DESCRIBED
from icestream.labels.relabel_config import parse_rules
from icestream.settings import SettingError
from tests.collector.labels.threads import CONTAINER, EXECUTABLE, Runtime, in_group, labels, of, python

POD = "1cf9e9b0-6b7e-4c5d-9d7b-2f6a1a8d3c11"
ROOT = Path(__file__).parents[3]


def test_a_process_is_named_by_itself_then_its_environment_its_container_its_unit_and_its_program() -> None:
    sources = {
        "context": "a",
        "activity": "b",
        "environment": "c",
        "container": "d",
        "unit": "e",
        "script": "f",
        "executable": "/bin/g",
    }
    sources["comm"] = "h"
    for expected in "abcdefgh":
        assert service_name(**sources) == expected
        sources[next(who for who, name in sources.items() if name)] = ""
    assert service_name(**sources | {"executable": "/memfd:sealed-7f", "comm": "runc"}) == "runc"
    unknown = {"context": "unknown_service:java", "activity": "unknown_service"}
    assert service_name(**sources | unknown | {"environment": "shop", "container": "x"}) == "shop"


def test_the_environment_names_a_process_where_its_activity_does_not() -> None:
    for environ, declared, service in (
        ({"OTEL_SERVICE_NAME": "env"}, "activity", "activity"),
        ({"OTEL_SERVICE_NAME": "env"}, "", "env"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=my%20shop"}, "", "my shop"),
        ({}, "activity", "activity"),
    ):
        known = ThreadLabels("myhost")
        with python(**environ) as process:
            known.notice(process)
            assert labels(known, process)["host"] == "myhost"
            known.declare({process.pid: declared} if declared else {})
            assert labels(known, process)["service"] == service


def test_a_process_keeps_the_name_that_its_activity_gave_it_last() -> None:
    known = ThreadLabels("h")
    with python() as process:
        known.notice(process)
        assert labels(known, process)["service"] != "shop"
        known.declare({process.pid: "shop"})
        known.declare({})
        assert labels(known, process)["service"] == "shop"
        known.declare({process.pid: "other"})
        assert labels(known, process)["service"] == "other"


def test_a_process_context_names_the_process_and_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    known = ThreadLabels("h")
    declared = "service.name=no,service.version=1.4,service.namespace=web,deployment.environment=old"
    publish = "from icestream import tracing; tracing.start(service='shop', socket='/none')"
    with python(publish, OTEL_RESOURCE_ATTRIBUTES=declared, OTEL_SERVICE_NAME="env") as process:
        known.notice(process)
        known.declare({process.pid: "activity"})
        actual = labels(known, process)
    assert actual["service"] == "shop"
    assert (actual["service_version"], actual["service_namespace"]) == ("1.4", "web")
    assert actual["deployment_environment"] == "old"


def test_a_context_that_is_published_later_gives_the_threads_other_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    known = ThreadLabels("h")
    with python() as process:
        known.notice(process)
        before = labels(known, process)

        def look(context: ContextReader) -> bool:
            context.attributes = {"service.name": "shop"}
            return True

        monkeypatch.setattr(ContextReader, "look", look)
        known.notice(process)
        assert labels(known, process) == before | {"service": "shop"}


def test_selected_variables_are_labels_and_no_others(tmp_path: Path) -> None:
    config = label_config(CollectorSettings(environment_labels="VERSION, 2ND-x ,ABSENT"))
    known = ThreadLabels("h", config)
    with python(VERSION="1.4\x1b", SECRET="hunter2", **{"2ND-x": "y" * 1000}) as process:
        known.notice(process)
        actual = labels(known, process)
    assert actual["version"] == "1.4?"
    assert actual["_2nd_x"] == "y" * 200
    assert "absent" not in actual
    assert "hunter2" not in repr(known._known)


def test_what_only_rules_need_is_there_for_rules_and_goes_then(tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text("""
- {source_labels: [__meta_environment_TEAM], target_label: team}
- {source_labels: [__meta_command_line], regex: ".*(print).*", target_label: command}
- {source_labels: [__meta_pid, __meta_tid], target_label: ids}
- {source_labels: [__meta_executable_path], target_label: path}
- {source_labels: [__meta_otel_team_lead], target_label: lead}
- {action: labeldrop, regex: host}
""")
    known = ThreadLabels("h", label_config(CollectorSettings(relabel=str(file))))
    with python(TEAM="blue", OTEL_RESOURCE_ATTRIBUTES="team.lead=ann") as process:
        known.notice(process)
        actual = labels(known, process)
    assert (actual["team"], actual["command"], actual["lead"]) == ("blue", "print", "ann")
    assert actual["ids"] == f"{process.pid};{process.pid}"
    assert actual["path"] == os.path.realpath(sys.executable)
    assert "host" not in actual
    assert not any(name.startswith("__") for name in actual)


def test_a_thread_that_a_rule_drops_has_no_labels_and_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = parse_rules([{"action": "drop", "source_labels": ["thread_name"], "regex": "GC.*"}], "here")
    known = ThreadLabels("h", LabelConfig(rules=rules))
    assert known.labels(2**22 + 1, 5, "GC 1") is None
    assert known.labels(2**22 + 1, 6, "main") is not None
    monkeypatch.setattr("collector.labels.thread_labels.relabel", lambda *_: pytest.fail("computed again"))
    assert known.labels(2**22 + 1, 5, "GC 1") is None
    assert known.labels(2**22 + 1, 6, "main") is not None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"environment_labels": "POD"}, "__meta_environment_POD"),
        ({"environment_labels": "VERSION,version"}, "would become the label version"),
        ({"environment_labels": "A=B"}, "expected names of variables"),
        ({"environment_labels": "__X"}, "expected names of variables"),
        ({"environment_labels": ",".join(f"V{i}" for i in range(33))}, "more than 32"),
        ({"kubernetes": "on"}, "expected off, kubelet or api, got 'on'"),
        ({"relabel": "/nonexistent/rules.yaml"}, "/nonexistent/rules.yaml"),
    ],
)
def test_settings_that_cannot_be_followed_are_errors(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        label_config(CollectorSettings(**settings))


def test_a_container_and_a_unit_name_what_does_not_name_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {
        f"/system.slice/docker-{CONTAINER}.scope": {
            "service": "web", "container": "site-web-1", "container_id": CONTAINER, "container_runtime": "docker",
        },
        "/system.slice/nginx.service": {"service": "nginx", "unit": "nginx.service"},
        "/user.slice/user-0.slice/session-3.scope": {"service": EXECUTABLE, "unit": "session-3.scope"},
        "/user.slice/user-0.slice/user@0.service": {"service": EXECUTABLE, "unit": "user@0.service"},
    }  # fmt: skip
    with python() as process:
        for path, expected_labels in expected.items():
            in_group(monkeypatch, path)
            known = ThreadLabels("h", containers=Runtime())
            known.notice(process)
            actual = labels(known, process)
            assert actual | expected_labels == actual
            assert actual["cgroup"] == path


@pytest.mark.ebpf  # as root
def test_a_process_in_a_control_group_of_docker_has_its_container() -> None:
    root = Path("/sys/fs/cgroup")
    root = root if (root / "cgroup.procs").exists() else root / "memory"  # version 2, or 1
    group = root / "icestream-test" / f"docker-{CONTAINER}.scope"
    group.mkdir(parents=True)
    try:
        known = ThreadLabels("h", containers=Runtime())
        with python() as process:
            (group / "cgroup.procs").write_text(str(process.pid))
            known.notice(process)
            actual = labels(known, process)
        assert (actual["container_id"], actual["container_runtime"]) == (CONTAINER, "docker")
        assert actual["cgroup"].endswith(f"/icestream-test/docker-{CONTAINER}.scope")
        assert actual["service"] == "web"
    finally:
        group.rmdir()
        group.parent.rmdir()


class Cluster(Pods):
    """Knows its pods after it was asked for the second time."""

    def find(self, pod_uid: str, container_id: str) -> Pod | None:
        self.pause += 1
        containers = {CONTAINER: ("main", "containerd")}
        return (
            Pod(POD, "shop-x2x", "prod", "node-1", "shop", "shop", {"team": "blue"}, containers)
            if self.pause > 2
            else None
        )


def test_a_pod_that_becomes_known_gives_the_threads_other_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    in_group(monkeypatch, f"/kubepods/besteffort/pod{POD}/{CONTAINER}")
    rules = parse_rules([{"source_labels": ["__meta_kubernetes_pod_label_team"], "target_label": "team"}], "here")
    pods = Cluster(PodSource(""), pause=0)
    known = ThreadLabels("h", LabelConfig(pods=pods, rules=rules), Containers(Path("/nonexistent")))
    with python() as process:
        known.notice(process)
        assert labels(known, process) | {"service": EXECUTABLE, "pod_uid": POD} == labels(known, process)
        known.declare({})
        known.declare({})
        actual = labels(known, process)
        asked = pods.pause
        known.declare({})
        assert pods.pause == asked, "a known pod is not asked for"
    expected = {"pod": "shop-x2x", "namespace": "prod", "container": "main", "node": "node-1", "team": "blue"}
    assert actual | expected | {"service": "main", "container_runtime": "containerd"} == actual


def test_labels_are_sorted_by_name_and_none_is_empty() -> None:
    known = ThreadLabels("h")
    process = read_process(os.getpid())
    assert process is not None
    known.notice(process)
    pairs = known.labels(process.pid, process.pid, "a thread")
    assert pairs is not None
    assert [name for name, _ in pairs] == sorted(name for name, _ in pairs)
    assert all(value for _, value in pairs)
    assert dict(pairs)["thread_name"] == "a thread"


def test_a_process_that_is_gone_is_named_by_what_the_kernel_saw() -> None:
    assert of(ThreadLabels("h"), 2**22 + 1, 2**22 + 1, "cc1") == {
        "comm": "cc1", "host": "h", "service": "cc1", "thread_name": "cc1",
    }  # fmt: skip


def test_threads_of_the_kernel_are_one_service() -> None:
    known = ThreadLabels("h")
    known.notice(Process(2, 1, (0, 0, 0), kernel=True))
    assert of(known, 2, 2, "kthreadd")["service"] == "[kernel]"
    assert of(known, 0, 0, "swapper/0")["service"] == "[kernel]"


def test_a_thread_that_changes_its_name_gets_another_series() -> None:
    known = ThreadLabels("h")
    assert known.labels(2**22 + 1, 5, "one") != known.labels(2**22 + 1, 5, "two")


def test_a_process_id_that_was_given_again_is_another_process() -> None:
    known = ThreadLabels("h")
    with python(OTEL_SERVICE_NAME="old") as process:
        known.notice(process)
        assert labels(known, process)["service"] == "old"
        known.declare({process.pid: "said"})
        known.notice(process._replace(pid=process.pid, start_ticks=1, kernel=True))
        assert labels(known, process)["service"] == "[kernel]"
        known.declare({})
        known.forget([process.pid])
        assert labels(known, process, "x")["service"] == "x"


def test_memory_is_bounded_however_many_processes_and_threads_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.labels.thread_labels.MAX_PROCESSES", 10)
    monkeypatch.setattr("collector.labels.thread_labels.MAX_THREADS", 10)
    known = ThreadLabels("h")
    for i in range(100):
        assert of(known, 2**22 + i, i, f"p{i}")["service"] == f"p{i}"
        assert of(known, 2**22, i, f"t{i}")["thread_name"] == f"t{i}"
    assert len(known._known) == 10
    assert max(len(process.threads) for process in known._known.values()) <= 10


def test_names_with_control_characters_or_broken_text_are_made_harmless() -> None:
    labels = of(ThreadLabels("h"), 2**22 + 1, 5, "a\x1b[2J\udcff")
    assert labels["thread_name"] == "a?[2J?"


def test_every_label_is_documented() -> None:
    page = (ROOT / "docs/labels.md").read_text(encoding="utf-8")
    assert not [label for label in sorted(DESCRIBED) if f"| `{label}` |" not in page]
    code = (ROOT / "collector/labels/process_labels.py").read_text() + (
        ROOT / "collector/labels/thread_labels.py"
    ).read_text()
    assert not [meta for meta in sorted(set(re.findall(r"__meta_[a-z_]+", code))) if f"`{meta}" not in page]
