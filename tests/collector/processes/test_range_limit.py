"""A process with more executable ranges than are known of one: files stay, and generated code has larger areas."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.processes import mapped_ranges
from collector.processes.mapped_files import FileCache
from collector.processes.mapped_ranges import MappedRangeReader, put
from collector.processes.mappings import ProcessMappings
from collector.processes.range_limit import NamedRange, limited
from tests.collector.processes.test_mapped_ranges import mapped_range
from tests.collector.processes.test_mappings import address_of, located

MOST = 64
SOURCE = """#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
	char *memory = mmap(0, 400 * 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < 400; i++) mprotect(memory + i * 8192, 4096, PROT_READ | PROT_EXEC);
	printf("%p\\n", memory), fflush(stdout);
	return pause();
}
"""


def joined(first: NamedRange, last: NamedRange) -> NamedRange:
    return first._replace(end=last.end)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5), st.sampled_from(["", "heap", "/a", "/b"])), max_size=30),
    st.integers(1, 30),
)
def test_no_file_goes_before_memory_and_nothing_else_is_covered_than_gaps(
    given: list[tuple[int, int, str]], most: int
) -> None:
    ranges: list[NamedRange] = []
    for gap, size, name in given:
        start = (ranges[-1].end if ranges else 0) + gap
        ranges.append(NamedRange(start, start + size, name, not name.startswith("/")))
    found = limited(ranges, lambda each: each, joined, most)
    assert len(found) <= max(most, 0)
    assert found == sorted(found)
    if len(ranges) <= most:
        assert found == ranges
    files = [each for each in ranges if not each.joins]
    if len(files) <= most:
        assert [each for each in found if not each.joins] == files
    for each in found:
        inside = [one for one in ranges if each.start <= one.start < each.end]
        assert {one.name for one in inside} == {each.name}
        assert inside[-1].end == each.end


def test_ranges_that_come_one_after_the_other_leave_files_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_ranges, "MAX_RANGES", MOST)
    library = mapped_range(10_000, 10_010, 1)
    ranges = [library]
    for number in range(1000):
        put(ranges, mapped_range(3 * number, 3 * number + 1, 0))
        assert len(ranges) <= MOST
        assert library in ranges
        assert any(each.start <= 3 * number < each.end for each in ranges)
    assert all(any(each.start <= 3 * number < each.end for each in ranges) for number in range(1000))


def test_libraries_and_generated_code_of_a_process_with_many_ranges_are_located(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(mapped_ranges, "MAX_RANGES", MOST)
    path = tmp_path / "program"
    subprocess.run(["gcc", "-no-pie", "-x", "c", "-", "-o", path], input=SOURCE.encode(), check=True)
    files = FileCache()
    with subprocess.Popen([path], stdout=subprocess.PIPE) as process:
        assert process.stdout
        memory = int(process.stdout.readline(), 16)
        ranges = MappedRangeReader(files).read(process.pid)
        assert len(ranges) <= MOST
        assert any("libc" in each.file.file for each in ranges)
        known = ProcessMappings(files)
        known.notice(process.pid)
        addresses = address_of(path, "main"), memory, memory + 200 * 8192, memory + 399 * 8192
        assert [file.file for file, _ in located(known, process.pid, *addresses)] == [str(path), *["[anon]"] * 3]
        process.kill()
    files.close()
