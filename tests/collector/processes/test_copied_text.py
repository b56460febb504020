"""Programs that move the code of a library to memory without a file, as they do to have it on huge pages."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from collector.elf import identity
from collector.processes.mapped_files import FileCache
from collector.processes.mappings import ProcessMappings
from collector.processes.process_events import parse
from tests.collector.processes import kernel_records as kernel
from tests.collector.processes.test_mappings import address_of, located

pytestmark = pytest.mark.slow

LIBRARY = """
int filler(int x) { return x * 3; }
int hot(int x) { return x * 2; }
__asm__(".section .text.large, \\"ax\\"; .skip 0x10000; .text");
"""
SOURCE = """#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
/* Arguments: library, what to do. Says where `hot` is, and what it did. */
int main(int count, char **names)
{
	void *library = dlopen(names[1], RTLD_NOW);
	char *hot = dlsym(library, "hot"), line[500];
	unsigned long begin, end, start = 0, size = 0;
	FILE *maps = fopen("/proc/self/maps", "r");
	while (fgets(line, sizeof(line), maps))
		if (strstr(line, "r-xp") && sscanf(line, "%lx-%lx", &begin, &end) == 2 && begin <= (long)hot && (long)hot < end)
			start = begin, size = end - begin;
	printf("%p %lx %lx\\n", hot, start, size), fflush(stdout), getchar();
	if (!strcmp(names[2], "part"))  /* the page with `hot` only, as where huge pages do not fit to the ends */
		start = (long)hot & -4096, size = 4096;
	void *code = malloc(size);
	memcpy(code, (void *)start, size);
	if (!strcmp(names[2], "other"))
		dlclose(library);
	mmap((void *)start, size, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	memcpy((void *)start, code, size);
	mprotect((void *)start, size, PROT_READ | PROT_EXEC);
	printf("%lx %lx\\n", start, size), fflush(stdout);
	getchar();
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("copied")
    for options, source in (
        (["-shared", "-fPIC", "-o", made / "libhot.so"], LIBRARY),
        (["-o", made / "program"], SOURCE),
    ):
        subprocess.run(["gcc", "-x", "c", "-", *options], input=source.encode(), check=True)
    return made


@contextmanager
def started(folder: Path, what: str) -> "Iterator[subprocess.Popen[bytes]]":
    command = [folder / "program", folder / "libhot.so", what]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        try:
            yield process
        finally:
            process.kill()


def numbers(process: "subprocess.Popen[bytes]") -> list[int]:
    assert process.stdout
    return [int(number, 16) for number in process.stdout.readline().split()]


def go_on(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin
    process.stdin.write(b"\n")


@pytest.mark.parametrize("followed", [False, True], ids=["read", "followed by events"])
@pytest.mark.parametrize(("what", "named"), [("all", True), ("part", True), ("other", False)])
def test_copied_code_is_that_of_the_file_while_the_rest_of_the_file_is_mapped(
    folder: Path, what: str, named: bool, followed: bool
) -> None:
    files = FileCache()
    known = ProcessMappings(files)
    library = folder / "libhot.so"
    vaddr = address_of(library, "hot")
    with started(folder, what) as process:
        [hot, _, _] = numbers(process)
        if followed:
            known.notice(process.pid)
            assert located(known, process.pid, hot)[0][0].file == str(library)
        go_on(process)
        start, size = numbers(process)
        if followed:
            now = 1 << 62
            for step in range(2):  # the program mapped the memory, and then changed what may be done with it
                known.apply(parse([kernel.mapped(now + step, process.pid, start, size, 0, "//anon")]))
        else:
            known.notice(process.pid)
        [(file, address)] = located(known, process.pid, hot)
        build_id = identity.read_bytes(library.read_bytes()).build_id
        assert (file.file, file.build_id, address) == (
            (str(library), build_id, vaddr) if named else ("[anon]", "", hot)
        )
        [mapped_range] = [each for each in known.ranges(process.pid) if each.start <= hot < each.end]
        assert bool(mapped_range.file_key) == named
    files.close()


def test_a_process_that_maps_over_its_code_again_and_again_is_not_read_each_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    files = FileCache()
    known = ProcessMappings(files)
    with started(folder, "other") as process:
        [_, start, size] = numbers(process)
        known.notice(process.pid)
        original = known._reader._copy
        monkeypatch.setattr(known._reader, "_copy", lambda *of: read.append(1) or original(*of))
        now = 1 << 62
        mapping = [kernel.mapped(now + step, process.pid, start, size, 0, "//anon") for step in range(200)]
        known.apply(parse([b"".join(mapping)]))
    assert 0 < len(read) < 50
    files.close()
