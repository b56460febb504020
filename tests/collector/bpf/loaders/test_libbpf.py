"""The binding to libbpf, on this kernel."""

import ctypes
import errno
import os
import platform
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from collector.bpf.loaders import libbpf
from collector.bpf.loaders.choose import LoadError, choose
from collector.bpf.loaders.libbpf import LibbpfLoader, Map
from collector.bpf.program import SOURCE

pytestmark = pytest.mark.ebpf
CALL_GET_STACK = struct.pack("<BBhi", 0x85, 0, 0, 67)


def damaged(folder: Path, change: tuple[bytes, bytes]) -> Path:
    """A source beside which lies the committed object with one change."""
    data = SOURCE.with_suffix(".o").read_bytes()
    assert change[0] in data
    (folder / "profile.bpf.o").write_bytes(data.replace(*change))
    return folder / "profile.bpf.c"


def test_what_the_verifier_refuses_is_told_with_the_end_of_its_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    source = damaged(tmp_path, (CALL_GET_STACK, struct.pack("<BBhi", 0x85, 0, 0, 1 << 20)))
    with pytest.raises(LoadError) as error:
        LibbpfLoader().load(source, "profile", {})
    assert "the kernel refused profile.bpf.o" in str(error.value)
    assert "invalid func" in str(error.value)
    assert len(str(error.value).splitlines()) <= libbpf.LOG_LINES + 1
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="builds a va_list of x86-64 by hand")
def test_a_long_verifier_log_is_read_to_its_end() -> None:
    """Formatting a va_list twice, as the kernel's log is longer than any guess of its length."""
    libc = ctypes.CDLL(None)
    printer = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_void_p)
    assert printer(("vsnprintf", libc))
    words = np.zeros(4, np.uint64)  # a va_list of x86-64 whose arguments all lie in memory
    text = ctypes.create_string_buffer(b"log " * 50_000)
    arguments = np.array([ctypes.addressof(text)], np.uint64)
    words[0] = 48 | 304 << 32
    words[1] = arguments.ctypes.data
    assert len(libbpf._format(b"<%s>", words.ctypes.data)) == 200_002


@pytest.mark.parametrize("garbage", [b"", b"\x7fELF", b"no object at all" * 100])
def test_a_file_that_is_no_object_is_a_clear_error(tmp_path: Path, garbage: bytes) -> None:
    (tmp_path / "profile.bpf.o").write_bytes(garbage)
    with pytest.raises(LoadError, match=r"profile\.bpf\.o cannot be read"):
        LibbpfLoader().load(tmp_path / "profile.bpf.c", "profile", {})


def test_an_object_that_is_missing_says_how_to_build_it(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="make -C"):
        LibbpfLoader().load(tmp_path / "profile.bpf.c", "profile", {})


def test_a_kernel_without_btf_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libbpf, "BTF", Path("/nonexistent"))
    with pytest.raises(LoadError, match="no BTF"):
        LibbpfLoader().load(SOURCE, "profile", {})


def test_a_program_or_map_that_is_not_there_is_named() -> None:
    with pytest.raises(LoadError, match="'missing'"):
        LibbpfLoader().load(SOURCE, "missing", {})
    with pytest.raises(LoadError, match="'nothing'"):
        LibbpfLoader().load(SOURCE, "profile", {"nothing": 1})
    program = LibbpfLoader().load(SOURCE, "profile", {})
    with pytest.raises(LoadError, match="'nothing'"):
        program.map_fd("nothing")
    program.close()
    program.close()


def test_a_loader_that_nobody_knows_is_refused() -> None:
    with pytest.raises(LoadError, match="libbpf, bcc"):
        choose("perf")


def test_a_map_gives_back_what_was_put_in() -> None:
    program = LibbpfLoader().load(SOURCE, "profile", {})
    contexts = Map(program.map_fd("contexts"))
    for pid in range(1, 101):
        contexts.update(struct.pack("=I", pid), struct.pack("=q40x", -pid))
    assert contexts.lookup(struct.pack("=I", 7), 48) == struct.pack("=q40x", -7)
    contexts.delete(struct.pack("=I", 7))
    contexts.delete(struct.pack("=I", 7))
    assert contexts.lookup(struct.pack("=I", 7), 48) is None
    program.close()


def test_sizes_that_are_not_the_maps_are_refused_before_the_kernel_reads_or_writes_beyond_them() -> None:
    program = LibbpfLoader().load(SOURCE, "profile", {})
    contexts, key = Map(program.map_fd("contexts")), bytes(4)
    for wrong in (
        lambda: contexts.update(key, bytes(24)), lambda: contexts.update(bytes(8), bytes(48)),
        lambda: contexts.lookup(key, 24), lambda: contexts.delete(bytes(2)), lambda: contexts.values(4, 24, 10),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="keys of 4 and values of 48 bytes"):
            wrong()
    program.close()


def test_a_full_map_is_an_error() -> None:
    program = LibbpfLoader().load(SOURCE, "profile", {"contexts": 2})
    contexts = Map(program.map_fd("contexts"))
    contexts.update(struct.pack("=I", 1), bytes(48))
    contexts.update(struct.pack("=I", 2), bytes(48))
    with pytest.raises(OSError, match=os.strerror(errno.E2BIG)):
        contexts.update(struct.pack("=I", 3), bytes(48))
    program.close()


@pytest.mark.soak  # `make test` and CI run `make bpf-check`, which is the same
def test_the_committed_object_is_what_the_source_builds() -> None:
    clang = shutil.which("clang")
    version = subprocess.run([clang, "--version"], capture_output=True, text=True).stdout if clang else "no clang"
    if " version 14." not in version:
        pytest.skip(f"the object was built by clang 14; here: {version.splitlines()[0]}")
    subprocess.run(["make", "-s", "-C", SOURCE.parent, "check"], check=True)
