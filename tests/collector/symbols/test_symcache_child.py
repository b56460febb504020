import os
from pathlib import Path

from collector.symbols import symcache_child


def test_stream_processors_of_another_user_can_read_the_symbol_store_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        uri = symcache_child._store(b"names", str(tmp_path), "ab" * 32)
    finally:
        os.umask(before)
    file = Path(uri)
    assert (file.parent.stat().st_mode & 0o777, file.stat().st_mode & 0o777) == (0o755, 0o644)
