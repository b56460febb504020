"""The repository as text: lines that people read (docs, comments, docstrings, messages), and the code around them."""

import ast
import functools
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = (
    "api",
    "benchmarks",
    "bpf",
    "collector",
    "gateway",
    "icestream",
    "jobs",
    "sinks",
    "standalone",
    "streams",
)
"""Folders of code, beside the tests."""
GENERATED = ("icestream/v1/", "icestream/pprof/", "icestream/pyroscope/", "bpf/include/")

_WORD = re.compile(r"[A-Za-z_]\w*")
_HASH = re.compile(r"(?:^|\s)#(.*)")
_SLASHES = re.compile(r"(?<!:)//[^\n]*|/\*.*?\*/", re.DOTALL)
_COMMENTS = {
    **dict.fromkeys([".c", ".h", ".cpp", ".js", ".css", ".proto", ".rs", ".go"], _SLASHES),
    ".sql": re.compile(r"--.*"),
    ".html": re.compile(r"<!--.*?-->", re.DOTALL),
}
_WHOLE = {".md", ".toml", ".yml", ".sh", ".service", ".properties"}
"""All of these counts as prose: they name files and settings everywhere."""


@dataclass(frozen=True)
class Line:
    path: str
    number: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.number}"


@dataclass(frozen=True)
class Class:
    name: str
    bases: set[str]
    members: set[str]


@dataclass
class Source:
    """A file: its prose, the words of its code, and of Python the strings, top-level names and classes."""

    path: str
    prose: list[Line] = field(default_factory=list)
    messages: list[Line] = field(default_factory=list)
    """Strings of Python code with a space in them."""
    words: set[str] = field(default_factory=set)
    strings: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    classes: list[Class] = field(default_factory=list)


@functools.cache
def tracked() -> tuple[str, ...]:
    """Every file that is in git, or would be with `git add`, by its path from the root."""
    listed = subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, text=True)
    return tuple(path for path in listed.splitlines() if (ROOT / path).is_file())


@functools.cache
def sources() -> dict[str, Source]:
    """Every text file of the repository."""
    read = {}
    for path in tracked():
        suffix = Path(path).suffix
        if suffix == ".py":
            read[path] = _python(path)
        elif suffix in _COMMENTS:
            read[path] = _commented(path, _COMMENTS[suffix])
        elif suffix in _WHOLE or Path(path).name in ("Makefile", "Dockerfile"):
            read[path] = Source(path, prose=list(_split(path, 1, (ROOT / path).read_text(encoding="utf-8"))))
    return read


@functools.cache
def lines() -> tuple[Line, ...]:
    """Every line of prose outside of generated files."""
    ours = [source for path, source in sources().items() if not path.startswith(GENERATED)]
    return tuple(line for source in ours for line in source.prose + source.messages)


def _python(path: str) -> Source:
    texts = (ROOT / path).read_text(encoding="utf-8").splitlines()
    tree = ast.parse("\n".join(texts))
    source = Source(path, names={name for node in tree.body for name in _bound(node)})
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            source.prose += _split(path, node.lineno, node.value.value)
        elif isinstance(node, ast.ClassDef):
            bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
            members = {name for part in node.body for name in _bound(part)}
            members.update(part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute))
            source.classes.append(Class(node.name, bases, members))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.lineno not in docstrings:
            source.strings.add(node.value)
            if " " in node.value and not path.startswith("tests/"):
                source.messages += _split(path, node.lineno, node.value)
    for number, text in enumerate(texts, 1):
        if number not in docstrings:
            comment = _HASH.search(text)
            if comment:
                source.prose.append(Line(path, number, comment[1]))
            source.words.update(_WORD.findall(text[: comment.start()] if comment else text))
    return source


def _commented(path: str, comments: re.Pattern[str]) -> Source:
    text = (ROOT / path).read_text(encoding="utf-8")
    source = Source(path, words=set(_WORD.findall(comments.sub(" ", text))))
    for match in comments.finditer(text):
        source.prose += _split(path, text.count("\n", 0, match.start()) + 1, match[0])
    return source


def _split(path: str, first: int, text: str) -> Iterator[Line]:
    for offset, line in enumerate(text.splitlines()):
        yield Line(path, first + offset, line)


def _bound(node: ast.stmt) -> Iterator[str]:
    """The names that a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from ((alias.asname or alias.name).split(".")[0] for alias in node.names)
    else:
        yield from (part.id for part in ast.walk(node) if isinstance(part, ast.Name))
