"""Packs the Helm chart, so that the same files give the same bytes: python deploy/release/chart.py FOLDER HELM"""

import subprocess
import sys
from pathlib import Path

from wheels import ROOT, repack

if __name__ == "__main__":
    out, helm = sys.argv[1:3]
    command = [helm, "package", "-d", out, str(ROOT / "deploy/helm/icestream")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    chart = Path(done.stdout.strip().rpartition(": ")[2])  # "Successfully packaged chart and saved it to: FILE"
    repack(chart)
    print(chart)
