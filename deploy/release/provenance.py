"""Says what a release was made from, as an in-toto statement (SLSA provenance 1.0): provenance.py FOLDER

Its subjects are all files in FOLDER. Its dependencies are the commit, the wheels in build/inputs/, and the base and the
Debian packages of each image in FOLDER. It has no time and no name of a machine, so equal inputs give equal bytes.
"""

import hashlib
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

from wheels import ROOT


def provenance(out: Path) -> dict[str, Any]:
    """Returns the statement."""
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()
    required = sorted((ROOT / "build/inputs").glob("*/*.whl"))
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "predicateType": "https://slsa.dev/provenance/v1",
        "subject": [_digest(path) for path in sorted(out.iterdir())],
        "predicate": {
            "buildDefinition": {
                "buildType": "make release",
                "externalParameters": {"commit": commit},
                "resolvedDependencies": [
                    {"name": "icestream", "digest": {"gitCommit": commit}},
                    *(_digest(path) for path in required),
                    *_inside_images(out),
                ],
            },
            "runDetails": {"builder": {"id": "Makefile"}},
        },
    }


def _inside_images(out: Path) -> list[dict[str, Any]]:
    """Bases by their labels (deploy/docker/build_images.py), and packages of Debian by the SBOMs beside the images."""
    bases, packages = {}, set()
    for path in sorted(out.glob("*.tar")):
        with tarfile.open(path) as image:
            (manifest,) = json.loads(_read(image, "manifest.json"))
            labels = json.loads(_read(image, manifest["Config"]))["config"]["Labels"]
        algorithm, _, digest = labels["org.opencontainers.image.base.digest"].partition(":")
        bases[labels["org.opencontainers.image.base.name"]] = {algorithm: digest}
        parts = json.loads(path.with_suffix(".cdx.json").read_text())["components"]
        packages |= {part["purl"] for part in parts if part["purl"].startswith("pkg:deb/")}
    found: list[dict[str, Any]] = [{"name": name, "digest": digest} for name, digest in bases.items()]
    return [*found, *({"uri": purl} for purl in sorted(packages))]


def _read(image: tarfile.TarFile, path: str) -> bytes:
    file = image.extractfile(path)
    assert file is not None, path
    return file.read()


def _digest(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"name": path.name, "digest": {"sha256": hashlib.file_digest(file, "sha256").hexdigest()}}


if __name__ == "__main__":
    print(json.dumps(provenance(Path(sys.argv[1])), indent=1))
