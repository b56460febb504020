"""Lists what a Python environment has, as CycloneDX 1.6 (JSON).

python - NAME VERSION < deploy/release/sbom.py    # in an image: of its Python, and of its packages of Debian
"""

import json
import sys
import sysconfig
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

_DPKG = Path("/var/lib/dpkg/status")


def sbom(name: str, version: str, packages: Path, dpkg: Path | None = None) -> dict[str, Any]:
    """Returns the list of all distributions in the folder `packages`, and in the file `dpkg`, dpkg's status, as parts
    of the component `name`."""
    found = sorted(distributions(path=[str(packages)]), key=lambda one: one.name.lower())
    components = [_component(one) for one in found] + (_debian(dpkg) if dpkg else [])
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", "bom-ref": name, "name": name, "version": version}},
        "components": components,
        "dependencies": [{"ref": name, "dependsOn": [one["bom-ref"] for one in components]}],
    }


def _component(one: Distribution) -> dict[str, Any]:
    purl = f"pkg:pypi/{one.name.lower().replace('_', '-')}@{one.version}"
    component = {"type": "library", "bom-ref": purl, "name": one.name, "version": one.version, "purl": purl}
    if expression := one.metadata.get("License-Expression"):
        component["licenses"] = [{"expression": expression}]
    elif text := (one.metadata.get("License") or "").strip():
        component["licenses"] = [{"license": {"name": text.splitlines()[0]}}]
    return component


def _debian(dpkg: Path) -> list[dict[str, Any]]:
    """The installed packages, by name."""
    components = []
    for paragraph in sorted(dpkg.read_text().split("\n\n")):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if line[:1].isalpha() and ": " in line)
        if fields.get("Status") == "install ok installed":
            name, version = fields["Package"], fields["Version"]
            purl = f"pkg:deb/debian/{name}@{version.replace('+', '%2B')}?arch={fields['Architecture']}"
            components.append({"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl})
    return components


if __name__ == "__main__":
    print(json.dumps(sbom(*sys.argv[1:3], Path(sysconfig.get_path("purelib")), _DPKG), indent=1))
