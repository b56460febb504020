"""Pages that only the start of the embedded ClickHouse needed are given back."""

import _ctypes
import re
import subprocess
import sys
from pathlib import Path

import pytest

from icestream.process.loaded_code import drop_start_pages, unchanged
from tests.waiting import PATIENCE_S

PROGRAM = """
import re, sys
from pathlib import Path
import chdb
from icestream.clickhouse.client import connect

def library_mb():
    mappings = re.split(r"(?m)^(?=[0-9a-f]+-)", Path("/proc/self/smaps").read_text())
    return sum(int(re.search(r"Rss: +([0-9]+)", each)[1]) for each in mappings if "_chdb" in each) // 1024

before = library_mb()
client = connect("chdb://" + sys.argv[1])
first = library_mb()
answers = {client.query("SELECT sum(number), max(toString(number)) FROM numbers(1000)").result_rows[0]}
connect("chdb://" + sys.argv[1])
print(before, first, *answers)
"""


@pytest.mark.store
def test_less_of_the_engine_is_in_memory_after_its_start_than_before(tmp_path: Path) -> None:
    asked = [sys.executable, "-c", PROGRAM, str(tmp_path / "data")]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    before, first, answer = done.stdout.split(maxsplit=2)
    assert answer == "(499500, '999')\n"
    assert int(first) < int(before) / 2


def test_pages_that_are_not_as_in_the_file_stay() -> None:
    before = own_pages(_ctypes.__file__)
    assert drop_start_pages() > 0
    assert own_pages(_ctypes.__file__) == before != []


SMAPS = """
7f0000000000-7f0000002000 r--p 00000000 fe:00 123 /usr/lib/a library.so
Rss:                   4 kB
Anonymous:             {anonymous} kB
Swap:                  {swapped} kB
SwapPss:               0 kB
VmFlags: rd mr mw me
"""


@pytest.mark.parametrize(("anonymous", "swapped", "count"), [(0, 0, 1), (4, 0, 0), (0, 4, 0)])
def test_own_pages_may_be_swapped_out(anonymous: int, swapped: int, count: int) -> None:
    smaps = SMAPS.format(anonymous=anonymous, swapped=swapped)
    found = [(0x7F0000000000, 0x7F0000002000)] * count
    assert unchanged(smaps) == found


def test_what_is_of_no_file_or_can_be_written_is_left_alone() -> None:
    smaps = SMAPS.format(anonymous=0, swapped=0)
    assert unchanged(smaps.replace("r--p", "rw-p")) == unchanged(smaps.replace("/usr/lib/a library.so", "[vdso]")) == []


def own_pages(library: str) -> list[str]:
    """How much of each mapping of a library has other contents than its file: relocated addresses, variables."""
    mappings = re.split(r"(?m)^(?=[0-9a-f]+-)", Path("/proc/self/smaps").read_text())
    of_library = [each for each in mappings if each.partition("\n")[0].endswith(library)]
    return re.findall(r"Anonymous: +([1-9][0-9]*)", "".join(of_library))
