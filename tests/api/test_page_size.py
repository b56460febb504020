"""The page stays small."""

import gzip
import re

from tests.prose import ROOT, tracked


def test_the_page_is_as_small_as_its_documentation_says() -> None:
    files = [path for path in tracked() if str(path).startswith("api/page/")]
    size = sum(len(gzip.compress((ROOT / path).read_bytes(), 4)) for path in files)
    said = re.search(r"at most (\d+) kB compressed", (ROOT / "docs/page.md").read_text())
    assert said is not None
    assert 1_000 < size <= int(said[1]) * 1000, f"{size} bytes"
