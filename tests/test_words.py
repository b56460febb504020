"""One word for one idea: names of classes and functions, and sentences that are understood at the first reading."""

import ast
import functools
import re
from collections import defaultdict

from docs.generate_settings import PARTS
from tests.prose import GENERATED, ROOT, lines, tracked

VAGUE = {"of", "take", "note", "together"}
"""Not the names of a public function, method or module: they do not say what is done to what."""
VERB = re.compile(
    r"(?:allow|answer|apply|ask|check|collect|connect|do|drop|end|expect|follow|give|hold|keep|leave|let|load|log|make"
    r"|profile|publish|put|read|receive|recognise|refuse|run|sample|scrape|send|serve|show|start|take|trust|use|wait"
    r"|work|write)\b"
)
"""What the help of a setting begins with."""
_BEGINNING = r"(?:^\s*(?:[#*-]+|//|/\*+)?\s*|[.] )"
SENTENCES = {
    "begins with 'Of'": re.compile(rf"(?:{_BEGINNING}|; )Of [a-z`]"),
    "has 'who' as its subject": re.compile(rf"{_BEGINNING}Who (?!can )|[;:] who [a-z]+"),
    "has ', of which'": re.compile(r", of which\b"),
}


def test_a_class_name_means_one_class() -> None:
    """Classes with an underscore are of one file, and may have the name of another file's."""
    places = defaultdict(list)
    for path, node in definitions():
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            places[node.name].append(f"{path}:{node.lineno}")
    assert len(places) > 500
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_functions_and_modules_have_names_that_say_what_they_do() -> None:
    functions = [
        f"{path}:{node.lineno}: {node.name}"
        for path, node in definitions()
        if not isinstance(node, ast.ClassDef) and node.name in VAGUE
    ]
    assert functions + [path for path in product() if path.rpartition("/")[2].removesuffix(".py") in VAGUE] == []


def test_sentences_begin_with_their_subject() -> None:
    found = [
        f"{line}: {what}: {line.text.strip()}"
        for line in lines()
        if line.path != "tests/test_words.py"
        for what, pattern in SENTENCES.items()
        if pattern.search(line.text)
    ]
    assert found == []


def test_help_of_settings_begins_with_a_verb() -> None:
    """In the imperative, as in `--share`: sample on this share of the hosts."""
    helps = {f.metadata["help"] for _, _, part in PARTS for f in part.__dataclass_fields__.values()}
    assert len(helps) > 100
    assert [text for text in sorted(helps) if not VERB.match(text)] == []


@functools.cache
def definitions() -> list[tuple[str, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]]:
    return [
        (path, node)
        for path in product()
        for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def product() -> list[str]:
    """The Python files of the product that people write."""
    others = ("tests/", "benchmarks/", "docs/", "examples/", *GENERATED)
    return [path for path in tracked() if path.endswith(".py") and not path.startswith(others)]
