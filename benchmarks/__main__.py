"""All benchmarks, one after the other, as one JSON object: python -m benchmarks [NAME...]

Each is a module or package that prints a JSON object, and runs in a process of its own. Compare only figures of one
run: machines differ, and so does one machine from hour to hour.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
NAMES = sorted(path.stem for path in FOLDER.glob("[!_]*.py")) + sorted(
    path.parent.name for path in FOLDER.glob("*/__main__.py")
)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"benchmarks to run (default: all of {', '.join(NAMES)})"
    )
    names = parser.parse_args(argv).names or NAMES
    if unknown := set(names) - set(NAMES):
        parser.error(f"expected names out of {', '.join(NAMES)}, got {', '.join(sorted(unknown))}")
    results, failed = {}, False
    for number, name in enumerate(names, 1):
        print(f"[{number}/{len(names)}] {name}", file=sys.stderr, flush=True)
        done = subprocess.run(
            [sys.executable, "-m", f"benchmarks.{name}"], cwd=FOLDER.parent, capture_output=True, text=True, check=False
        )
        if done.returncode:
            failed = True
            print(f"{name} failed:\n{done.stderr[-2000:]}", file=sys.stderr)
        else:
            results[name] = json.loads(done.stdout)
    print(json.dumps(results, indent=2))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
