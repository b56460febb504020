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


@pytest.mark.parametrize("layer", sorted(ALLOWED))
def test_a_layer_imports_only_from_layers_below_it(layer: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {module}"
        for path in sorted((ROOT / layer).rglob("*.py"))
        for module in imported(path)
        if (top := module.split(".")[0]) in ALLOWED and top != layer and top not in ALLOWED[layer]
    ]
    assert wrong == []


API_LAYERS = ("queries", "tree", "views", "render", "http", "commands")
"""Folders of api/, lowest first."""


@pytest.mark.parametrize("layer", API_LAYERS)
def test_a_folder_of_the_api_imports_only_from_folders_below_it(layer: str) -> None:
    above = API_LAYERS[API_LAYERS.index(layer) + 1 :]
    wrong = [
        f"{path.relative_to(ROOT)}: {module}"
        for path in sorted((ROOT / "api" / layer).rglob("*.py"))
        for module in imported(path)
        if module.startswith(tuple(f"api.{folder}." for folder in above))
    ]
    assert wrong == []


def test_sql_of_the_api_is_in_its_queries_only() -> None:
    wrong = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "api").rglob("*.py"))
        if path.parent.name != "queries" and re.search(r"\b(SELECT|WHERE|GROUP BY)\b", path.read_text())
    ]
    assert wrong == []


def test_tracing_imports_the_standard_library_only() -> None:
    wrong = [
        f"{path.name}: {module}"
        for path in (ROOT / "icestream/tracing").rglob("*.py")
        for module in imported(path)
        if not module.startswith("icestream.tracing")
        and module.split(".")[0]
        not in sys.stdlib_module_names | {"opentelemetry", "uvloop", "anyio"}  # hooks, where they are installed
    ]
    assert wrong == []


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
    """Returns every module that a file imports, anywhere in it."""
    modules = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.append(node.module)
    return modules
