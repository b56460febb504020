"""Where tests keep unwinding tables that they do not ask about: each is made once for all tests of a process."""

import tempfile
from pathlib import Path

_FOLDER = tempfile.TemporaryDirectory(prefix="icestream-unwind-")  # removed when the process ends
TABLES = Path(_FOLDER.name)
