"""A user without rights, and a message, name files that nobody but root may open."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from collector.delivery.message_log import Message
from collector.delivery.publisher import SpoolPublisher
from collector.delivery.spool import Spool
from collector.processes.file_owner import ROOT
from collector.settings import CollectorSettings
from collector.symbols.symbol_files import SymbolFiles
from collector.symbols.symbol_responder import SymbolResponder
from icestream.v1.symbols_pb2 import SymbolFile, SymbolRequest
from tests.collector.forging import BUILD_ID, NOBODY, compiled, folder
from tests.collector.processes.test_regular_file import Opens
from tests.collector.symbols.test_forged_names import SOURCE, USER, Seen, program, seen

pytestmark = pytest.mark.slow

__all__ = ["folder", "program", "seen"]


@pytest.fixture
def linked(folder: Path) -> Callable[[Path], Path]:
    """Makes a stripped program of NOBODY, in a folder of that user, whose debug file is a link to another file."""

    def linked(target: Path) -> Path:
        home = folder / "home"
        home.mkdir()
        source, debug = home / "user.c", home / "user.debug"
        source.write_text(SOURCE.replace("NAME", "user"))
        made = compiled(source, home / "user", "-g", owner=NOBODY)
        subprocess.run(["objcopy", "--only-keep-debug", made, debug], check=True)
        subprocess.run(["objcopy", "--strip-all", f"--add-gnu-debuglink={debug}", made], check=True)
        debug.unlink()
        debug.symlink_to(target)
        for path in (home, debug):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        return made

    return linked


def test_a_debug_link_does_not_make_root_read_the_messages_of_the_kernel(
    linked: Callable[[Path], Path], seen: Seen
) -> None:
    made = linked(Path("/proc/kmsg"))
    seen.run(made, NOBODY)
    opens = Opens(Path("/proc/kmsg"))
    assert seen.kind_of_names(made)
    assert not opens.any()


def test_a_debug_link_does_not_make_root_open_a_file_of_another_user(
    linked: Callable[[Path], Path], folder: Path, seen: Seen
) -> None:
    secret = folder / "secret"
    secret.write_bytes(b"secret")
    secret.chmod(0o600)
    os.chown(secret, USER, USER)
    made = linked(secret)
    seen.run(made, NOBODY)
    opens = Opens(secret)
    assert seen.kind_of_names(made)
    assert not opens.any()


def test_a_file_is_not_opened_because_a_request_names_its_path(
    program: Callable[..., Path], tmp_path: Path, seen: Seen
) -> None:
    whole = program("whole", ROOT)
    settings = CollectorSettings(kafka="127.0.0.1:1", host_id="me", spool=tmp_path / "spool")
    spool, sent = Spool(settings.spool, 1 << 20), []
    publisher = SpoolPublisher(settings, spool)
    publisher.send = sent.append  # type: ignore[method-assign]

    def answer(files: SymbolFiles) -> SymbolFile:
        responder = SymbolResponder(settings, publisher, files)
        request = SymbolRequest(build_id=f"gnu:{BUILD_ID}", host_id="me", file=str(whole))
        request.requested_unix_nano = time.time_ns()
        responder._note(request.SerializeToString())
        assert responder._answer_next(responder._builder, large=True) or responder._answer_next(
            responder._builder, large=False
        )
        responder._builder.end_children()
        message = sent.pop()
        assert isinstance(message, Message)
        return SymbolFile.FromString(message.value)

    opens = Opens(whole)
    assert answer(SymbolFiles()).error
    assert not opens.any()
    seen.run(whole, ROOT)
    assert not answer(seen.files).error
    spool.close()
