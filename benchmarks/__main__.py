"""All benchmarks, one after the other, as one JSON object: python -m benchmarks [NAME...]

Each is a module of its own that prints a JSON object; here each runs in a process of its own. Compare figures of one
run only: machines differ, and so does one machine from hour to hour.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
NAMES = sorted(path.stem for path in FOLDER.glob("[!_]*.py"))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; default: all")
    names = parser.parse_args(argv).names or NAMES
    if unknown := set(names) - set(NAMES):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}: there are {', '.join(NAMES)}")
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
