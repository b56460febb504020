"""Which request for symbols is answered next."""

from collector.processes.mapped_files import MapsEntry
from collector.symbols.request_queue import MAX_BYTES, RequestQueue
from collector.symbols.symbol_files import SymbolFiles


def queue(**mapped_bytes: int) -> RequestQueue:
    """A queue on a host that has files of these sizes mapped."""
    files = SymbolFiles()
    for name, size in mapped_bytes.items():
        files.note(name, MapsEntry(1, 0x1000, 0x1000 + size, 8, 1, f"/{name}"))
    return RequestQueue(files)


def test_the_smallest_file_is_next_also_if_it_was_asked_for_last() -> None:
    waiting = queue(library=1 << 30, program=1 << 12, middle=1 << 20)
    waiting.put("library", "/library")
    waiting.put("middle", "/middle")
    assert waiting.take() == ("middle", "/middle")
    waiting.put("program", "/program")
    assert [waiting.take(), waiting.take(), waiting.take()] == [("program", "/program"), ("library", "/library"), None]


def test_a_request_that_is_repeated_waits_once_and_a_flood_is_bounded() -> None:
    waiting = queue()
    for i in range(20_000):
        waiting.put(f"gnu:{i:040x}", "/" + "x" * 100)
        waiting.put("gnu:again", "/again")
    taken = 0
    build_ids = set()
    while (request := waiting.take()) is not None and taken < 20:
        taken += 1
        build_ids.add(request[0])
    assert len(build_ids) == taken == 20
    assert waiting._paths.bytes <= MAX_BYTES
