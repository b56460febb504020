"""How long after a batch was published a query finds it, with everything embedded and a web service at work.

    python -m benchmarks.freshness

Runs `icestream demo --once` (199 Hz) and prints one JSON object: the 95th percentile in seconds, and the requests'
sampled CPU divided by their thread CPU.
"""

import argparse
import json
import subprocess
import sys


def main(argv: list[str] | None = None) -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args(argv)
    command = [sys.executable, "-m", "icestream.cli", "demo", "--once", "--json"]
    report = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    print(
        json.dumps(
            {
                "freshness_p95_s": report["freshness_p95_s"],
                "sampled_over_thread_cpu": round(report["sampled_cpu_s"] / report["thread_cpu_s"], 4),
                "samples": report["samples"],
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
