"""Which request for symbols is answered next."""

from collector.processes.mapped_files import MapsEntry
from collector.symbols.request_queue import MAX_BYTES, Request, RequestQueue
from collector.symbols.symbol_files import SymbolFiles


def queue(**mapped_bytes: int) -> RequestQueue:
    """A queue on a host that has files of these sizes mapped."""
    files = SymbolFiles()
    for name, size in mapped_bytes.items():
        files.note(name, MapsEntry(1, 0x1000, 0x1000 + size, 8, 1, f"/{name}"))
    return RequestQueue(files)


def taken(waiting: RequestQueue, large: bool = False) -> list[str]:
    """The build IDs of all requests that wait, in the order in which they are taken."""
    return [request.build_id for request in iter(lambda: waiting.take(large), None)]


def test_the_smallest_file_and_the_oldest_request_take_turns() -> None:
    waiting = queue(library=1 << 24, program=1 << 12, middle=1 << 20, other=1 << 18)
    for name in ("middle", "library", "other", "program"):
        waiting.put(name, f"/{name}")
    assert taken(waiting) == ["program", "middle", "other", "library"]


def test_ever_new_small_programs_do_not_keep_a_larger_file_waiting() -> None:
    """Its request is repeated meanwhile, and keeps its place."""
    waiting = queue(victim=1 << 20, **{f"new{i}": 1 << 12 for i in range(8)})
    waiting.put("new0", "/new0")
    waiting.put("victim", "/victim")
    answered = []
    for i in range(1, 8):
        waiting.put(f"new{i}", f"/new{i}")
        waiting.put("victim", "/victim")
        request = waiting.take(large=False)
        assert request
        answered.append(request.build_id)
        if request.build_id == "victim":
            break
    assert len(answered) <= 4


def test_large_files_and_those_of_unknown_size_are_taken_apart_from_the_others() -> None:
    waiting = queue(browser=1 << 28, library=1 << 26, program=1 << 12)
    for name in ("browser", "library", "program", "unknown"):
        waiting.put(name, f"/{name}")
    waiting.put("kernel", "[kernel]")
    assert waiting.has_large()
    assert taken(waiting, large=True) == ["unknown", "browser", "library"]
    assert not waiting.has_large()
    assert taken(waiting) == ["kernel", "program"]


def test_a_downloaded_file_waits_by_its_size_and_no_repeat_of_its_request_replaces_it() -> None:
    waiting = queue(library=1 << 26, program=1 << 12)
    for name, error in (("library", ""), ("program", "debuginfod: no server has it")):
        waiting.put(name, f"/{name}", error)
        waiting.put(name, f"/{name}")
        waiting.drop_repeat(name)
    assert [waiting.take(large) for large in (True, False)] == [
        Request("library", "/library", "", 0), Request("program", "/program", "debuginfod: no server has it", 2),
    ]  # fmt: skip


def test_a_repeat_of_what_was_just_answered_is_dropped() -> None:
    waiting = queue(program=1 << 12)
    waiting.put("program", "/program")
    assert waiting.take(large=False)
    waiting.put("program", "/program")
    waiting.drop_repeat("program")
    assert waiting.take(large=False) is None


def test_a_request_that_is_repeated_waits_once_and_a_flood_is_bounded() -> None:
    waiting = queue()
    for i in range(20_000):
        waiting.put(f"gnu:{i:040x}", "[" + "x" * 100)
        waiting.put("gnu:again", "[again")
    assert waiting._requests.bytes <= MAX_BYTES
    build_ids = [request.build_id for _ in range(20) if (request := waiting.take(large=False))]
    assert len(set(build_ids)) == len(build_ids) == 20
