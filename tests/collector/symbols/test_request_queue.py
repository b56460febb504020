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
    waiting = queue(library=1 << 24, program=1 << 12, middle=1 << 20)
    waiting.put("library", "/library")
    waiting.put("middle", "/middle")
    assert waiting.take(large=False) == ("middle", "/middle")
    waiting.put("program", "/program")
    taken = [waiting.take(large=False) for _ in range(3)]
    assert taken == [("program", "/program"), ("library", "/library"), None]


def test_large_files_are_taken_apart_from_the_others() -> None:
    waiting = queue(browser=1 << 28, library=1 << 26, program=1 << 12)
    for name in ("browser", "library", "program", "gone"):
        waiting.put(name, f"/{name}")
    assert waiting.has_large()
    assert [waiting.take(large=True) for _ in range(3)] == [("library", "/library"), ("browser", "/browser"), None]
    assert not waiting.has_large()
    assert [waiting.take(large=False) for _ in range(3)] == [("gone", "/gone"), ("program", "/program"), None]


def test_a_request_that_is_repeated_waits_once_and_a_flood_is_bounded() -> None:
    waiting = queue()
    for i in range(20_000):
        waiting.put(f"gnu:{i:040x}", "/" + "x" * 100)
        waiting.put("gnu:again", "/again")
    taken = 0
    build_ids = set()
    while (request := waiting.take(large=False)) is not None and taken < 20:
        taken += 1
        build_ids.add(request[0])
    assert len(build_ids) == taken == 20
    assert waiting._paths.bytes <= MAX_BYTES
