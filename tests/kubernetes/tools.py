"""Where tests/kubernetes/build_tools.sh puts the programs of Kubernetes and Helm."""

import os
from pathlib import Path

TOOLS = Path(
    os.environ.get("ICESTREAM_KUBERNETES")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "icestream/kubernetes"
)
