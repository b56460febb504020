"""What unwinding tables cost: the time to build one, to read it from disk, and its size.

    python -m benchmarks.unwind_tables [FILE...]

The default files are the C library, Python's library, the system's largest shared library and the vDSO. Prints one JSON
object: for each file CPU milliseconds to build its table (median of five), milliseconds to read a stored table, rows,
distinct rules, kilobytes stored and megabytes of code; and the largest resident memory of the process in megabytes.
"""

import argparse
import json
import os
import resource
import statistics
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from collector.processes.mapped_files import VDSO, vdso_bytes
from collector.unwind.cfi import code_file
from collector.unwind.tables import table as unwind_table
from collector.unwind.tables.cache import TableCache
from collector.unwind.tables.table import UnwindTable

TURNS = 5
LIBRARIES = Path("/lib/x86_64-linux-gnu")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    files = parser.parse_args(argv).files or _default_files()
    figures = {str(path): measure(path) for path in files}
    vdso = vdso_bytes()
    figures[VDSO] = _built(lambda: unwind_table.build_bytes(vdso))[1]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({"files": figures, "peak_resident_mb": peak}))
    return 0


def measure(path: Path) -> dict[str, float]:
    """Figures of one file."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        table, figures = _built(lambda: unwind_table.build(descriptor))
        code = code_file.from_descriptor(descriptor).code
    finally:
        os.close(descriptor)
    with tempfile.TemporaryDirectory() as folder:
        cache = TableCache(Path(folder))
        data = unwind_table.to_bytes(table, "gnu:00")
        cache._store("gnu:00", data)
        took = [_seconds(time.perf_counter, lambda: cache.cached("gnu:00")) for _ in range(TURNS)]
        cache.close()
    figures["read_ms"] = round(1e3 * statistics.median(took), 3)
    figures["kept_kb"] = len(data) // 1000
    figures["code_mb"] = round(int((code[:, 1] - code[:, 0]).sum()) / 1e6, 1)
    return figures


def _built(build: Callable[[], UnwindTable]) -> tuple[UnwindTable, dict[str, float]]:
    took = [_seconds(time.process_time, build) for _ in range(TURNS)]
    table = build()
    figures = {"build_cpu_ms": 1e3 * statistics.median(took), "rows": len(table.rows), "rules": len(table.rules)}
    return table, {name: round(value, 1) for name, value in figures.items()}


def _seconds(clock: Callable[[], float], work: Callable[[], object]) -> float:
    began = clock()
    work()
    return clock() - began


def _default_files() -> list[Path]:
    python = Path(sysconfig.get_config_var("LIBDIR") or "") / (sysconfig.get_config_var("INSTSONAME") or "")
    libraries = [path for path in LIBRARIES.glob("*.so*") if path.is_file() and not path.is_symlink()]
    largest = max(libraries, key=lambda path: path.stat().st_size)
    return [path for path in (LIBRARIES / "libc.so.6", python, largest) if path.is_file()]


if __name__ == "__main__":
    sys.exit(main())
