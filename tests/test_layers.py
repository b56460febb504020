"""Layers: a package imports only from the packages below it."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PARTS = {"collector", "streams", "sinks", "api", "gateway"}
ALLOWED: dict[str, set[str]] = {
    "icestream": set(),
    **{part: {"icestream"} for part in PARTS},
    "jobs": {"icestream", "streams", "sinks"},
    "standalone": {"icestream", *PARTS, "jobs"},
}


FOLDERS: dict[str, set[str]] = {
    "api.statistics": set(),
    "api.queries": set(),
    "api.tree": {"queries"},
    "api.comparison": {"statistics", "tree", "queries"},
    "api.views": {"queries", "tree"},
    "api.render": {"statistics", "queries", "tree"},
    "api.http": {"statistics", "comparison", "queries", "tree", "views", "render"},
    "api.terminal": {"statistics"},  # asks over HTTP
    "api.commands": {"http", "terminal"},
    "collector.elf": set(),
    "gateway.readers": set(),
    "gateway.scrape": {"readers"},
    "icestream.process": set(),
    "icestream.columns": set(),
    "icestream.files": set(),
    "icestream.labels": {"files"},
    "icestream.clickhouse": {"process"},
    "icestream.http": {"process"},
    "icestream.messages": {"v1", "columns", "labels", "process", "symbols"},
    "icestream.symbols": {"v1", "files", "process"},
    "icestream.kafka": {"messages"},
    "sinks.tables": {"clickhouse"},
    "streams.flatten": set(),
    "streams.operators": set(),
}
"""Folders of packages, and the folders of the same package that they import from."""


def test_these_are_all_packages() -> None:
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} == {*ALLOWED, "tests"}


@pytest.mark.parametrize("layer", sorted(ALLOWED))
def test_a_layer_imports_only_from_layers_below_it(layer: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / layer).rglob("*.py"))
        for name in imported(path)
        if (top := name.split(".")[0]) in {*ALLOWED, "tests"} and top not in {layer, *ALLOWED[layer]}
    ]
    assert wrong == []


def test_these_are_all_folders_of_the_api() -> None:
    folders = {f"api.{path.parent.name}" for path in (ROOT / "api").glob("*/__init__.py")}
    assert folders == {folder for folder in FOLDERS if folder.startswith("api.")}


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_imports_only_from_these_folders_of_its_package(folder: str) -> None:
    package, own = folder.split(".")
    others = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")} - FOLDERS[folder] - {own}
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / package / own).rglob("*.py"))
        for name in imported(path)
        if name.startswith(tuple(f"{package}.{other}." for other in others))
    ]
    assert wrong == []


def test_sql_of_the_api_is_in_its_queries_only() -> None:
    wrong = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "api").rglob("*.py"))
        if "queries" not in path.parts
        and path.name != "sql.py"  # which explain the SQL of users
        and re.search(r"\b(SELECT|WHERE|GROUP BY)\b", path.read_text())
    ]
    assert wrong == []


def test_tracing_imports_the_standard_library_only() -> None:
    wrong = [
        f"{path.name}: {name}"
        for path in (ROOT / "icestream/tracing").rglob("*.py")
        for name in imported(path)
        if not name.startswith("icestream.tracing")
        and name.split(".")[0]
        not in sys.stdlib_module_names | {"opentelemetry", "uvloop", "anyio"}  # hooks, where they are installed
    ]
    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("command", ["replay", "backfill"])
def test_a_job_needs_neither_the_embedded_clickhouse_nor_the_collector_nor_the_supervisor(command: str) -> None:
    code = (
        "import importlib, pkgutil, sys\n"
        "for name in ('chdb', 'collector', 'api', 'standalone'): sys.modules[name] = None\n"
        "import jobs\n"
        "for module in pkgutil.walk_packages(jobs.__path__, 'jobs.'): importlib.import_module(module.name)\n"
        "from icestream.cli import main\n"
        f"main(['{command}', '--help'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"usage: icestream {command}" in done.stdout


def imported(path: Path) -> list[str]:
    """Returns everything that a file imports, anywhere in it, by its full name."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names
