"""The house: a floor imports only from floors below it."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PARTS = {"collector", "streams", "sinks", "api"}
ALLOWED = {
    "icestream": set(),
    **{part: {"icestream"} for part in PARTS},
    "standalone": {"icestream", *PARTS},
}


@pytest.mark.parametrize("floor", sorted(ALLOWED))
def test_a_floor_imports_only_from_floors_below_it(floor: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {module}"
        for path in sorted((ROOT / floor).rglob("*.py"))
        for module in imported(path)
        if (top := module.split(".")[0]) in ALLOWED and top != floor and top not in ALLOWED[floor]
    ]
    assert wrong == []


def test_tracing_imports_the_standard_library_only() -> None:
    import sys

    wrong = [
        f"{path.name}: {module}"
        for path in (ROOT / "icestream/tracing").rglob("*.py")
        for module in imported(path)
        if not module.startswith("icestream.tracing")
        and module.split(".")[0]
        not in sys.stdlib_module_names | {"opentelemetry", "uvloop", "anyio"}  # hooks, where they are installed
    ]
    assert wrong == []


def imported(path: Path) -> list[str]:
    """Every module that a file imports, anywhere in it."""
    modules = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.append(node.module)
    return modules
