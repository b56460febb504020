"""IDs against a second implementation in plain Python, and the vectors in schemas/id_vectors.json."""

import json
from pathlib import Path

import numpy as np
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from icestream import ids
from tests.icestream import ids_reference as reference

VECTORS = json.loads((Path(__file__).parents[2] / "schemas" / "id_vectors.json").read_text())


U64 = st.integers(0, 2**64 - 1)
TEXT = st.text(max_size=300)


@given(st.binary(max_size=300) | st.binary(min_size=1000, max_size=1100))
def test_the_reference_hash_is_xxh3(data: bytes) -> None:
    assert reference.xxh3(data) == xxhash.xxh3_64_intdigest(data)


@given(st.lists(st.tuples(U64, U64), min_size=1))
def test_combine_of_columns_is_combine_of_each(pairs: list[tuple[int, int]]) -> None:
    a, b = (np.array(column, dtype=np.uint64) for column in zip(*pairs, strict=True))
    assert ids.combine(a, b).tolist() == [reference.location(*pair) for pair in pairs]


@given(TEXT, TEXT, st.integers(0, 2**32 - 1))
def test_mapping_and_named_ids_are_the_reference_ones(first: str, second: str, line: int) -> None:
    assert ids.mapping_id(first, second) == reference.mapping(first, second)
    pairs = [(first, second), (second, first), ("", first), (first, "")]
    functions, files = (ids.text_hashes(texts) for texts in zip(*pairs, strict=True))
    named = ids.combine(ids.combine(functions, files), np.array([line], dtype=np.uint64))
    assert named.tolist() == [reference.named(function, file, line) for function, file in pairs]


def test_the_vectors_of_locations_with_lines_are_what_streams_compute() -> None:
    for vector in VECTORS["location_with_lines"]:
        lines = [tuple(line) for line in vector["lines_innermost_first"]]
        location = reference.location(int(vector["mapping"], 16), int(vector["address"], 16))
        assert reference.with_lines(location, lines) == int(vector["id"], 16)


@given(st.dictionaries(TEXT, TEXT, max_size=8), st.randoms())
def test_series_ids_do_not_depend_on_the_order_of_labels(labels: dict[str, str], random: object) -> None:
    pairs = list(labels.items())
    random.shuffle(pairs)  # type: ignore[attr-defined]
    assert ids.series_id(pairs) == reference.series(labels)


def test_the_vectors_are_what_both_compute() -> None:
    for vector in VECTORS["xxh3"]:
        assert reference.xxh3(bytes.fromhex(vector["bytes"])) == int(vector["hash"], 16)
    for vector in VECTORS["combine"]:
        a, b = int(vector["a"], 16), int(vector["b"], 16)
        expected = [int(vector["combined"], 16)]
        assert ids.combine(np.array([a], np.uint64), np.array([b], np.uint64)).tolist() == expected
        assert [reference.combine(a, b)] == expected
    for vector in VECTORS["mapping"]:
        assert ids.mapping_id(vector["build_id"], vector["file"]) == int(vector["id"], 16)
        assert reference.mapping(vector["build_id"], vector["file"]) == int(vector["id"], 16)
    for vector in VECTORS["series"]:
        assert ids.series_id(vector["labels"].items()) == int(vector["id"], 16) == reference.series(vector["labels"])
    for vector in VECTORS["named_location"]:
        assert reference.named(vector["function"], vector["file"], vector["line"]) == int(vector["id"], 16)
    for vector in VECTORS["stack"]:
        locations = [int(location, 16) for location in vector["locations_root_first"]]
        assert [f"{node:016x}" for node in reference.nodes(locations)] == vector["nodes_root_first"]
