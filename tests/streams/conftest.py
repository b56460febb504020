"""The symbols of a program, as messages of icestream.symbols."""

import hashlib
import shutil
import subprocess
from collections.abc import Iterator

import pytest
import zstandard
from symbolic.debuginfo import Archive

from icestream.v1.symbols_pb2 import SymbolFile
from tests.slow_store import SlowStore


@pytest.fixture(scope="session")
def symbols(tmp_path_factory: pytest.TempPathFactory) -> tuple[SymbolFile, int]:
    """The symbols of a program, and the address of its function `work`."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    folder = tmp_path_factory.mktemp("program")
    (folder / "p.c").write_text("int work(int x) { return x + 1; }\nint main(void) { return work(1); }\n")
    subprocess.run(["gcc", "-g", "-O0", "-no-pie", "-o", folder / "p", folder / "p.c"], check=True)
    data = next(Archive.open(str(folder / "p")).iter_objects()).make_symcache().open_stream().read()
    lines = subprocess.check_output(["nm", folder / "p"], text=True).splitlines()
    address = next(int(line.split()[0], 16) for line in lines if line.endswith(" work"))
    file = SymbolFile(
        build_id="gnu:aa", version=7, size=len(data), sha256=hashlib.sha256(data).hexdigest(), load_address=0x400000,
        chunks=1, data=zstandard.ZstdCompressor().compress(data),
    )  # fmt: skip
    return file, address


@pytest.fixture
def store(symbols: tuple[SymbolFile, int]) -> Iterator[SlowStore]:
    """A symbol store that has them."""
    with SlowStore(symbols[0].data) as slow:
        yield slow
        slow.answers.set()
        slow.shutdown()


@pytest.fixture
def stored(symbols: tuple[SymbolFile, int], store: SlowStore) -> SymbolFile:
    """The message that says where in `store` they are."""
    file = SymbolFile(uri=store.uri)
    file.MergeFrom(symbols[0])
    file.ClearField("chunks")
    file.ClearField("data")
    return file
