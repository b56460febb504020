"""Runs the collector in virtual machines with other kernels (tests/kernels/inside.py says what is checked).

    python -m tests.kernels [KERNEL...]

Everything is emulated, so each takes minutes. Packages are kept in ~/.cache/icestream/kernels.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from tests.kernels.machine import KERNELS, run

TIMEOUT_S = 3600
CHECK = 'python3 -c "import sys; from icestream.cli import main; sys.exit(main())" collect --check'
PROJECT = Path(__file__).resolve().parents[2]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kernels", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help=f"some of {', '.join(KERNELS)}; by default all")
    wanted = parser.parse_args().kernels or list(KERNELS)
    if unknown := [name for name in wanted if name not in KERNELS]:
        parser.error(f"unknown kernel {unknown[0]}: expected {', '.join(KERNELS)}")
    failed = []
    for name in wanted:
        print(f"== {name}", flush=True)
        try:
            said = run(name, PROJECT, f"{CHECK}; python3 -m tests.kernels.inside", TIMEOUT_S)
        except (LookupError, OSError, subprocess.SubprocessError) as error:
            said = f"{error}"
        print(said, flush=True)
        if not said.rstrip().endswith("exit 0"):
            failed.append(name)
    print("failed: " + ", ".join(failed) if failed else f"passed: {', '.join(wanted)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
