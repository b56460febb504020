"""Says what a release was made from, as an in-toto statement (SLSA provenance 1.0): provenance.py FOLDER

Its subjects are all files in FOLDER. It has no time and no name of a machine, so the same commit gives the same bytes.
"""

import hashlib
import json
import subprocess
import sys
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
                ],
            },
            "runDetails": {"builder": {"id": "Makefile"}},
        },
    }


def _digest(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"name": path.name, "digest": {"sha256": hashlib.file_digest(file, "sha256").hexdigest()}}


if __name__ == "__main__":
    print(json.dumps(provenance(Path(sys.argv[1])), indent=1))
