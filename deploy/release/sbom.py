"""Lists what a Python environment has, as CycloneDX 1.6 (JSON)."""

from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any


def sbom(name: str, version: str, packages: Path) -> dict[str, Any]:
    """Returns the list of all distributions in the folder `packages`, as parts of the component `name`."""
    found = sorted(distributions(path=[str(packages)]), key=lambda one: one.name.lower())
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", "bom-ref": name, "name": name, "version": version}},
        "components": [_component(one) for one in found],
        "dependencies": [{"ref": name, "dependsOn": [_purl(one) for one in found]}],
    }


def _component(one: Distribution) -> dict[str, Any]:
    component = {"type": "library", "bom-ref": _purl(one), "name": one.name, "version": one.version, "purl": _purl(one)}
    if expression := one.metadata.get("License-Expression"):
        component["licenses"] = [{"expression": expression}]
    elif text := (one.metadata.get("License") or "").strip():
        component["licenses"] = [{"license": {"name": text.splitlines()[0]}}]
    return component


def _purl(one: Distribution) -> str:
    return f"pkg:pypi/{one.name.lower().replace('_', '-')}@{one.version}"
