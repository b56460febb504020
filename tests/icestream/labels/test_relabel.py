"""Relabeling rules mean what they mean in Prometheus."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icestream.labels.relabel import is_name, relabel
from icestream.labels.relabel_config import load_rules, parse_rules, sources, uses
from icestream.settings import SettingError, UnreadableFile

SHOP = {"comm": "java", "pod": "shop-7d4f-x2x", "service": "shop"}


def one(**rule: Any) -> list[dict[str, Any]]:
    return [rule]


# As Prometheus documents relabel_config; what hashmod gives is what Prometheus gives.
CASES: list[tuple[dict[str, str], list[dict[str, Any]], dict[str, str] | None]] = [
    (SHOP, one(source_labels=["pod"], regex="([a-z]+)-.*", target_label="app", replacement="the-${1}-$1"),
     SHOP | {"app": "the-shop-shop"}),
    (SHOP, one(source_labels=["comm", "service"], regex="(j)ava;s(.*)", target_label="service", replacement="$2$1"),
     SHOP | {"service": "hopj"}),
    (SHOP, [*one(source_labels=["service"], target_label="a"), *one(source_labels=["a"], target_label="b")],
     SHOP | {"a": "shop", "b": "shop"}),
    (SHOP, one(source_labels=["service"], regex="sh.*", action="drop"), None),
    (SHOP, one(source_labels=["service"], regex="ho", action="drop"), SHOP),  # the whole value has to match
    (SHOP, one(source_labels=["service"], regex="s|shop|p", action="drop"), None),
    (SHOP, one(source_labels=["service"], regex="s|p", action="drop"), SHOP),
    (SHOP, one(source_labels=["service"], regex="cart", action="keep"), None),
    (SHOP, one(source_labels=["service"], regex="(?i)SHOP", action="Keep"), SHOP),
    (SHOP, one(source_labels=["none"], regex="", action="keep"), SHOP),
    (SHOP, one(source_labels=["service"], regex="cart", target_label="comm", replacement="x"), SHOP),
    (SHOP, one(source_labels=["service", "comm"], separator="/", target_label="both"), SHOP | {"both": "shop/java"}),
    (SHOP, one(source_labels=["service", "none"], target_label="both"), SHOP | {"both": "shop;"}),
    (SHOP, one(source_labels=["pod"], regex="(.+)-.+-(.+)", target_label="pod_$1", replacement="$2"),
     SHOP | {"pod_shop": "x2x"}),
    (SHOP, one(source_labels=["pod"], regex="(.+)-(.+)-.+", target_label="$2", replacement="x"), SHOP),  # 7d4f: no name
    (SHOP, one(source_labels=["pod"], regex="(.+)-.+", target_label="${2}", replacement="x"), SHOP),
    ({"c": "baz"}, one(source_labels=["c"], target_label="c", action="hashmod", modulus=1000), {"c": "976"}),
    ({"c": "foo\nbar"}, one(source_labels=["c"], target_label="c", action="hashmod", modulus=1000), {"c": "734"}),
    ({"a": "1", "k8s_a": "2", "k8s_b": "3"}, one(regex="k8s_(.*)", action="labelmap"),
     {"a": "2", "b": "3", "k8s_a": "2", "k8s_b": "3"}),
    ({"__meta_kubernetes_pod_label_team": "blue", "__meta_pid": "1"},
     one(regex="__meta_kubernetes_pod_label_(.+)", replacement="pod_${1}", action="labelmap"), {"pod_team": "blue"}),
    (SHOP, one(regex="pod|comm", action="labelkeep"), {"comm": "java", "pod": "shop-7d4f-x2x"}),
    (SHOP, one(regex="pod|com", action="labeldrop"), {"comm": "java", "service": "shop"}),
    ({"a": "bA1"}, one(source_labels=["a"], action="uppercase", target_label="b"), {"a": "bA1", "b": "BA1"}),
    ({"a": "bA1"}, one(source_labels=["a"], action="lowercase", target_label="a"), {"a": "ba1"}),
    ({"p": "1", "q": "1"}, one(source_labels=["p"], action="keepequal", target_label="q"), {"p": "1", "q": "1"}),
    ({"p": "1", "q": "2"}, one(source_labels=["p"], action="keepequal", target_label="q"), None),
    ({"p": "1", "q": "1"}, one(source_labels=["p"], action="dropequal", target_label="q"), None),
    ({"p": "1", "q": "2"}, one(source_labels=["p"], action="dropequal", target_label="q"), {"p": "1", "q": "2"}),
    # an empty replacement takes a label away, a constant adds one; what begins with __ is for rules only
    (SHOP, [{"target_label": "pod", "replacement": ""}, {"target_label": "n", "replacement": "v"}],
     {"comm": "java", "n": "v", "service": "shop"}),
    ({}, [{"target_label": "__t", "replacement": "v"}, {"source_labels": ["__t"], "target_label": "n"}], {"n": "v"}),
    # templates are Go's: the longest name counts, $$ is a dollar, what there is not is empty
    ({"a": "foo"}, one(source_labels=["a"], regex="(?P<x>f)(o)?o(z)?", target_label="a", replacement="$1x|${1}x|$$|$x"),
     {"a": "|fx|$|f"}),
    ({"a": "foo"}, one(source_labels=["a"], regex="(?P<x>f)(o)?o(z)?", target_label="a", replacement="$3|$9|${y}|$"),
     {"a": "|||$"}),
]  # fmt: skip


@pytest.mark.parametrize(("labels", "rules", "expected"), CASES)
def test_rules_mean_what_they_mean_in_prometheus(
    labels: dict[str, str], rules: list[dict[str, Any]], expected: dict[str, str] | None
) -> None:
    before = dict(labels)
    assert relabel(labels, parse_rules(rules, "here")) == expected
    assert labels == before


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"action": "destroy"}, "there is no action 'destroy'; there are replace, keep"),
        ({"source_label": ["a"]}, "there is no field 'source_label'; there are source_labels"),
        ("keep everything", "expected fields such as 'action: drop', got 'keep everything'"),
        ({}, "replace needs a target_label"),
        ({"action": "lowercase"}, "lowercase needs a target_label"),
        ({"action": "lowercase", "target_label": "${3}"}, "target_label '${3}' is no label name"),
        ({"action": "lowercase", "target_label": "a", "replacement": "b"}, "lowercase takes no replacement"),
        ({"target_label": "0${3}"}, "target_label '0${3}' is no label name"),
        ({"target_label": "-label"}, "target_label '-label' is no label name"),
        ({"target_label": "foo${"}, "is no label name"),
        ({"action": "labelmap", "replacement": "-"}, "replacement '-' is no label name"),
        ({"action": "hashmod", "target_label": "a"}, "hashmod needs a modulus of 1 or more"),
        ({"action": "hashmod", "target_label": "a", "modulus": -1}, "modulus: expected a whole number, got -1"),
        ({"action": "hashmod", "target_label": "a", "modulus": True}, "modulus: expected a whole number"),
        ({"action": "labeldrop", "source_labels": ["a"]}, "labeldrop takes regex only, not source_labels"),
        ({"action": "keepequal", "target_label": "a", "regex": "x"}, "takes source_labels and target_label only"),
        ({"action": "drop", "source_labels": "a"}, "source_labels: expected a list such as"),
        ({"action": "drop", "source_labels": ["a-b"]}, "source_labels: 'a-b' is no label name"),
        ({"action": "drop", "source_labels": [1]}, "source_labels: 1 is no label name"),
        ({"action": "drop", "regex": "(a"}, "regex '(a': missing ): (a"),
        ({"action": "drop", "regex": r"(a)\1"}, "regex '(a)\\\\1': invalid escape sequence"),
        ({"action": "drop", "regex": None}, "regex: expected text, got None"),
        ({"action": "drop", "regex": ["a"]}, "regex: expected text, got ['a']"),
    ],
)
def test_a_rule_that_cannot_be_followed_is_an_error_that_says_which_and_why(rule: object, message: str) -> None:
    with pytest.raises(SettingError) as error:
        parse_rules([{"action": "drop"}, rule], "rules.yaml")
    assert str(error.value).startswith("rules.yaml: rule 2: ")
    assert message in str(error.value)


def test_rules_are_read_from_yaml_and_from_json(tmp_path: Path) -> None:
    file = tmp_path / "rules"
    file.write_text(
        "# comment\n- source_labels: [unit]\n  regex: 'ssh.*'\n  action: drop\n- {action: labeldrop, regex: 5}\n"
    )
    rules = load_rules(file)
    assert relabel({"unit": "sshd.service"}, rules) is None
    assert relabel({"unit": "cron.service"}, rules) == {"unit": "cron.service"}
    file.write_text(json.dumps({"relabel_configs": [{"target_label": "team", "replacement": "blue"}]}))
    assert relabel({}, load_rules(file)) == {"team": "blue"}
    file.write_text("")
    assert load_rules(file) == ()


@pytest.mark.parametrize(
    "content", [b"- a: [", b"\xff\xfe\x00", b"rules: 1", b"7", b"!!python/object:os.system x", b"a\n" * 600_000]
)
def test_a_file_that_holds_no_rules_is_an_error_that_names_it(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "rules.yaml"
    file.write_bytes(content)
    with pytest.raises(SettingError, match=r"rules\.yaml"):
        load_rules(file)
    with pytest.raises(UnreadableFile, match="absent"):
        load_rules(tmp_path / "absent")


def test_no_expression_takes_long_whatever_a_program_says() -> None:
    rules = parse_rules([{"source_labels": ["a"], "regex": "(a+)+b", "action": "keep"}], "here")
    started = time.thread_time()
    assert relabel({"a": "a" * 4000}, rules) is None
    assert time.thread_time() - started < 1


def test_what_rules_make_is_bounded() -> None:
    grow = {"source_labels": ["a", "a"], "target_label": "a"}
    many = [{"target_label": f"l{i}", "replacement": "x"} for i in range(200)]
    made = relabel({"a": "aaaaaaaaaaaaaaaa"}, parse_rules([grow] * 40 + many, "here"))
    assert made is not None
    assert len(made) == 64
    assert max(map(len, made.values())) == 1000


def test_the_labels_that_are_described_stay_if_there_are_too_many() -> None:
    labels = {"service": "shop", "span_name": "POST /pay", "__meta_pid": "7", "empty": ""}
    made = relabel(labels | {f"a{i:03}": "v" for i in range(200)}, [])
    assert made is not None
    assert list(made) == [*(f"a{i:03}" for i in range(62)), "service", "span_name"]


def test_it_is_known_what_rules_look_at() -> None:
    rules = parse_rules(
        [
            {"source_labels": ["__meta_environment_TEAM", "__meta_pid"], "target_label": "t"},
            {"action": "labelmap", "regex": "__meta_(com.*)"},
        ],
        "here",
    )
    assert sources(rules, "__meta_environment_") == ["TEAM"]
    assert uses(rules, "__meta_pid")
    assert uses(rules, "__meta_command_line")
    assert not uses(rules, "__meta_executable_path")


names = st.sampled_from(["a", "b", "service", "__meta_x", "__tmp"])
actions = st.sampled_from(["replace", "keep", "drop", "lowercase", "uppercase", "hashmod"])
rules = st.fixed_dictionaries(
    {
        "action": actions,
        "source_labels": st.lists(names, max_size=3),
        "target_label": names,
        "modulus": st.integers(1, 9),
        "regex": st.sampled_from(["(.*)", "(a)(b)?.*", ".+", "x|y"]),
    }
)


@given(st.dictionaries(names, st.text(max_size=20)), st.lists(rules, max_size=6))
def test_labels_that_come_out_are_fit_to_be_sent(labels: dict[str, str], configured: list[dict[str, Any]]) -> None:
    made = relabel(labels, parse_rules(configured, "here"))
    assert made is None or list(made) == sorted(made)
    assert all(is_name(name) and not name.startswith("__") and value for name, value in (made or {}).items())


def test_the_rules_of_the_docs_do_what_they_say(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs/labels.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 1
    file = tmp_path / "rules.yaml"
    file.write_text(blocks[0])
    rules = load_rules(file)
    assert relabel({"unit": "session-3.scope"}, rules) is None
    thread = {"executable": "java", "service": "java", "thread_name": "http-nio-8080-exec-12", "cgroup": "/x"}
    meta = {"__meta_command_line": "java -Xmx1g -jar /opt/shop.jar --port 1", "__meta_environment_TEAM": "blue"}
    assert relabel(thread | meta, rules) == {
        "executable": "java", "service": "shop", "team": "blue", "thread_name": "http-nio-8080-exec",
    }  # fmt: skip
    red = {"__meta_kubernetes_pod_label_team": "red"}
    assert relabel(thread | meta | red, rules) == relabel(thread | meta | {"__meta_environment_TEAM": "red"}, rules)
    assert relabel({"thread_name": "main", "service": "nginx"}, rules) == {"service": "nginx", "thread_name": "main"}
