"""Files, modules, symbols, settings, metrics, routes, commands and links that docs, comments and messages name exist.

Text in backticks that looks like code is looked up: members of classes, calls, and words in snake case or camel case.
"""

import functools
import importlib
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prometheus_client import REGISTRY
from ruamel.yaml import YAML

from api.terminal.client import URL_VARIABLE
from docs.generate_settings import PARTS
from icestream.settings import variable
from tests.prose import PACKAGES, ROOT, Line, lines, sources, tracked

FOLDERS = (*PACKAGES, "deploy", "docs", "examples", "schemas", "tests")
OTHERS = {
    *("api/querier/v1/querier.proto", "api/types/v1/types.proto", "docs-developer/CHANGELOG-formats.md"),
    *("NNNN_name.sql", "app.py", "containers.json", "run.json", "proto/profile.proto"),
    *("InternalDocs/code_objects.md", "Objects/locations.md", "docs/symbol_files.md"),
    *("--no-eh-frame", "icestream.logs", "api.commands.sql"),
    *("no_new_privs", "sched_yield", "_fini", "deploy_env", "___", "EAGAIN", "opentelemetry_pre_instrument"),
    *("--preload", "--workers", "--feature-gates", "--set", "KafkaUser"),
    *("--perf-basic-prof", "--no-opt", "--jitless", "--always-sparkplug", "--maglev", "--interrupt-budget"),
    *("app.js", "--experimental-async-context-frame"),
}
"""Names of other projects, of files that a running icestream makes, and what looks like a file."""
INSTALLED = ("icestream/tracing/build",)
"""What set-up makes."""

_HEAD = r"(?<![\w/.~:}>$@-])"
_FILE = re.compile(rf"{_HEAD}(?:\.\.?/)*(?:[\w-]+/)*[\w-]+(?:\.[\w-]+)*\.(?:py|md|sql|proto|js|css|html)\b(?![/(\w])")
_FOLDER = re.compile(rf"{_HEAD}(?:{'|'.join(FOLDERS)})/(?!v1\b)[\w./-]*(?![\w*{{<])")
_DOTTED = re.compile(rf"(?<![\w/.\"@-])(?:{'|'.join((*PACKAGES, 'tests'))})(?:\.[A-Za-z_]\w*)+(?![\w(/-]|\.\w|@)")
_BACKTICKS = re.compile(r"`([^`]+)`")
_MEMBER = re.compile(r"([A-Za-z_]\w*)\.([A-Za-z_]\w*)(?:\(.*\))?")
_CALL = re.compile(r"([A-Za-z_]\w*)\([^$]*\)")
_SYMBOL = re.compile(r"(?!CAP_|ICESTREAM_|icestream_|__)(?:\w*[a-zA-Z]_\w+|_\w+|[A-Z]\w*[a-z]\w*[A-Z]\w*)")
_FLAG = re.compile(r"--[a-z][a-z0-9-]*[a-z0-9]\b")
_LINK = re.compile(r"\]\((?!\w+:)([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def test_files_exist() -> None:
    basenames = {Path(path).name for path in tracked()}
    basenames |= {f"./{name}" for name in basenames}
    served = {str(path).removeprefix("api/page/") for path in tracked() if str(path).startswith("api/page/")}
    basenames |= {f"./{path}" for path in served}  # as scripts on the page import them
    missing = [
        f"{line}: {name}"
        for line in lines()
        for name in {*_FILE.findall(line.text), *_FOLDER.findall(line.text)}
        if not (file_exists(line.path, name.rstrip("./")) or name in OTHERS or name in basenames)
        and not name.startswith(INSTALLED)
    ]
    assert missing == []


def file_exists(path: str, name: str) -> bool:
    """Whether the root, the folder of `path` or a folder between them has `name`."""
    folders = [*(ROOT / path).parents]
    return any((folder / name).exists() for folder in folders[: folders.index(ROOT) + 1])


def test_modules_exist() -> None:
    missing = [
        f"{line}: {name}"
        for line in lines()
        for name in _DOTTED.findall(line.text)
        if not (is_module(name) or is_message(name) or is_chart_value(name))
        and not (name in constants() | OTHERS or (ROOT / name).exists())
        and not _FILE.fullmatch(name)
        and not line.path.endswith(".js")
    ]
    assert missing == []


def is_module(name: str) -> bool:
    """Whether a dotted name is a module or package of ours, a name in one, or a member of a class in one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        path, rest = "/".join(parts[:count]), parts[count:]
        for file in (f"{path}.py", f"{path}/__init__.py"):
            if source := sources().get(file):
                return not rest or (rest[0] in source.names and all(part in words() for part in rest[1:]))
        if (ROOT / path).is_dir() and not rest:
            return True
    return False


def is_chart_value(name: str) -> bool:
    """Whether a dotted name leads to a value of the Helm chart."""
    found = chart_values()
    *parts, last = name.split(".")
    for part in parts:
        found = found.get(part) if isinstance(found, dict) else None
    return isinstance(found, dict) and (last in found or not found)  # of what is empty by default, Kubernetes has more


@functools.cache
def chart_values() -> Any:
    return YAML(typ="safe").load(ROOT / "deploy/helm/icestream/values.yaml")


def is_message(name: str) -> bool:
    """Whether a dotted name begins with a package of schemas/, and all its other words are in that package's files."""
    package, _, rest = name.removeprefix("icestream.").partition(".")
    folder = f"schemas/icestream/{package}/"
    known = {word for path, source in sources().items() if path.startswith(folder) for word in source.words}
    return bool(known) and name.startswith("icestream.") and all(part in known for part in rest.split(".") if part)


def test_symbols_in_backticks_exist() -> None:
    assert [f"{line}: {code}" for line, code in backticks() if not symbol_exists(code)] == []


def symbol_exists(code: str) -> bool:
    if match := _MEMBER.fullmatch(code):
        owner, member = match.groups()
        if owner in classes():
            return member in classes()[owner]
        return member in words() or not (owner[0].isupper() or code.endswith(")"))
    if match := _CALL.fullmatch(code):
        return match[1] in words()
    return not _SYMBOL.fullmatch(code) or code in words() | OTHERS


def backticks() -> Iterator[tuple[Line, str]]:
    for line in lines():
        for code in _BACKTICKS.findall(line.text):
            yield line, code


def test_flags_exist() -> None:
    known = {"--" + field.replace("_", "-") for _, _, part in PARTS for field in part.__dataclass_fields__}
    known |= {f"--no-{flag[2:]}" for flag in known} | {text for text in constants() if text.startswith("--")}
    missing = [
        f"{line}: {flag}"
        for line, code in backticks()
        if code.startswith(("--", "icestream "))
        for flag in _FLAG.findall(code)
        if flag not in known | OTHERS | {"--help"}
    ]
    assert missing == []


def test_environment_variables_exist() -> None:
    known = {variable(field) for _, _, part in PARTS for field in part.__dataclass_fields__} | {URL_VARIABLE}
    known |= {text for text in constants() if text.startswith("ICESTREAM_")}
    missing = [
        f"{line}: {name}"
        for line in lines()
        for name in re.findall(r"\bICESTREAM_[A-Z0-9_]+", line.text)
        if name not in known
    ]
    assert missing == []


def test_metrics_exist() -> None:
    for part in ("api", "collector", "gateway", "sinks", "standalone", "streams"):
        importlib.import_module(f"{part}.metrics")
    known = set()
    for metric in REGISTRY.collect():
        known |= {metric.name, f"{metric.name}_total", *(sample.name for sample in metric.samples)}
    missing = [
        f"{line}: {name}"
        for line in lines()
        for name in re.findall(r"\bicestream_(?:api|collector|gateway|sinks|streams|supervisor)_[a-z_]+", line.text)
        if name not in known and f"{name}_total" not in known
    ]
    assert missing == []


def test_routes_exist() -> None:
    known = {re.sub(r"\{\w+(:path)?\}", "*", text) for text in constants() if text.startswith("/api/v1")} | {"/api/v1"}
    missing = [
        f"{line}: {route}"
        for line in lines()
        for route in re.findall(r"/api/v1(?:/[\w{}<>$-]+)*", line.text)
        if not any(matches(route, pattern) for pattern in known)
    ]
    assert missing == []


def matches(route: str, pattern: str) -> bool:
    given, expected = route.split("/"), pattern.split("/")
    return len(given) == len(expected) and all(b in ("*", a) for a, b in zip(given, expected, strict=True))


def test_commands_and_targets_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    commands = {*project["entry-points"]["icestream.commands"], "COMMAND"}
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    missing = [
        f"{line}: {code}"
        for line, code in backticks()
        if ((match := re.match(r"icestream ([a-zA-Z-]+)", code)) and match[1] not in commands)
        or ((match := re.fullmatch(r"make ([a-z-]+)", code)) and match[1] not in targets)
    ]
    assert missing == []


def test_links_lead_somewhere() -> None:
    missing = [
        f"{line}: {link}"
        for line in lines()
        if line.path.endswith(".md")
        for link in _LINK.findall(line.text)
        if not leads_somewhere(line.path, link)
    ]
    assert missing == []


def leads_somewhere(page: str, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (ROOT / page).parent / path if path else ROOT / page
    return target.exists() and (not anchor or anchor in anchors(target))


@functools.cache
def anchors(page: Path) -> set[str]:
    """What links to the headings of a page say, as GitHub makes it."""
    headings = _HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_there_is_much_to_look_up() -> None:
    assert len(lines()) > 5_000
    assert len(list(backticks())) > 500


@functools.cache
def words() -> frozenset[str]:
    """Every word of code in every language, strings included."""
    return frozenset().union(*(source.words for source in sources().values()))


@functools.cache
def constants() -> set[str]:
    """Every string in Python code outside of tests."""
    return {text for path, source in sources().items() if not path.startswith("tests/") for text in source.strings}


@functools.cache
def classes() -> dict[str, set[str]]:
    """Class -> its members, with those that it inherits; those of all classes of one name together."""
    members: dict[str, set[str]] = defaultdict(set)
    bases: dict[str, set[str]] = defaultdict(set)
    for source in sources().values():
        for one in source.classes:
            members[one.name] |= one.members
            bases[one.name] |= one.bases
    for name, above in bases.items():
        for base in above:
            members[name] |= members.get(base) or words()  # another project's class may have anything
    return members
