"""The labels that requests have of their process: which they are, as text, and how many sets a service may have."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icestream.labels.request_labels import MAX_SET, BadNames, RequestLabels, is_label_set, label_names, label_set

LABELS = (("host", "a"), ("pod", "shop-1"), ("service", "shop"), ("service_version", "1.1"), ("thread_name", "main"))


def test_chosen_labels_are_a_json_object_in_order() -> None:
    assert RequestLabels(["service_version", "pod"]).choose(LABELS) == '{"pod":"shop-1","service_version":"1.1"}'
    assert RequestLabels(["zone"]).choose(LABELS) == ""
    assert RequestLabels().choose(LABELS) == ""


def test_the_first_sets_of_a_service_in_a_day_are_kept_and_others_are_empty_and_counted() -> None:
    now = 0.0
    sets = RequestLabels(["service_version"], limit=2, clock=lambda: now)

    def of(service: str, version: str) -> str:
        return sets.choose((("service", service), ("service_version", version)))

    assert [of("shop", version) for version in "1231"] == [version_set(v) for v in ("1", "2", "", "1")]
    assert of("cart", "3") == version_set("3")
    assert sets.emptied == 1
    now = 90_000.0
    assert of("shop", "3") == version_set("3")
    assert of("shop", "v" * MAX_SET) == ""
    assert sets.emptied == 2


def version_set(version: str) -> str:
    return f'{{"service_version":"{version}"}}' if version else ""


def test_names_are_read_from_a_setting() -> None:
    assert label_names(" service_version , pod,pod,") == ("pod", "service_version")
    assert label_names("") == ()
    for bad in ("service", "thread_name", "a b", "1", "x" * 101, ",".join("abcdefghi")):
        with pytest.raises(BadNames, match="expected"):
            label_names(bad)


@given(st.dictionaries(st.text(min_size=1, max_size=9), st.text(min_size=1, max_size=9), max_size=4))
def test_only_what_is_made_here_is_a_set(labels: dict[str, str]) -> None:
    text = label_set(sorted(labels.items()))
    assert is_label_set(text)
    assert json.loads(text or "{}") == labels
    assert not is_label_set(f"{text} ")
    assert not is_label_set(json.dumps(labels | {"x": ""}))


@pytest.mark.parametrize(
    "text",
    ["{}", "[]", '{"b":"1","a":"1"}', '{"a":1}', '{"a":"1","a":"2"}', '{"a":["1"]}', '{"a":null}', '{"a":"1"',
     '{"a": "1"}', "[" * 900, '{"a":' * 180, '{"":"1"}x', f'{{"a":"{"1" * MAX_SET}"}}', '{"a":"\\u0031"}', "1", '"a"'],
)  # fmt: skip
def test_other_texts_are_none(text: str) -> None:
    assert not is_label_set(text)
