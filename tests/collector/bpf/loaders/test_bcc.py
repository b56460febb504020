"""The loader for kernels without BTF, on this kernel, which has it: also where it cannot be seen."""

import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.bpf.loaders import bcc, bcc_compile, libbpf
from collector.bpf.loaders.bcc import BccLoader, with_maps
from collector.bpf.loaders.bpf_syscall import MapDefinition, VerifierError, create_map, load_program
from collector.bpf.loaders.choose import choose
from collector.bpf.loaders.libbpf import LibbpfLoader, describe
from collector.bpf.loaders.loader import LoadError
from collector.bpf.program import SOURCE
from tests.open_files import EBPF, open_files

ROOT = Path(__file__).parents[4]
PERF_EVENT = 7
LOOK = """
import json, os, sys, time
from pathlib import Path
from collector.bpf.loaders.choose import choose
from collector.bpf.loaders.loader import LoadError
from collector.bpf.program import SOURCE
from collector.bpf.sampler import Sampler
try:
    choose("libbpf").load(SOURCE, "profile", {})
except LoadError as error:
    print(error)
sampler = Sampler(999, "auto")
sampler.start()
until = time.process_time() + 0.5
while time.process_time() < until:
    sampler.poll()  # on a busy machine this takes longer than the kernel's buffers last
drain = sampler.drain()
mine = drain.pid == os.getpid()
user = (drain.stack_depth - drain.stack_kernel_depth)[drain.stack[mine]]
print(json.dumps({"samples": int(mine.sum()), "with user frames": int((user > 0).sum()), "lost": drain.lost}))
print("libbcc" in Path("/proc/self/maps").read_text())
"""


@pytest.mark.ebpf
def test_a_kernel_whose_btf_is_out_of_reach_is_profiled() -> None:
    hidden = 'mount -t tmpfs none /sys/kernel/btf && ! test -e /sys/kernel/btf/vmlinux && exec $0 -c "$1"'
    command = ["unshare", "--mount", "sh", "-c", hidden, sys.executable, LOOK]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "this kernel has no BTF" in said[0]
    seen = json.loads(said[1])
    assert seen["samples"] > 300
    assert seen["with user frames"] > 0.97 * seen["samples"]
    assert seen["lost"] == 0
    assert said[2] == "False"  # the compiler's 100 MB are not in the collector


@pytest.mark.ebpf
def test_programs_and_maps_are_those_of_the_other_loader_and_none_is_left_behind() -> None:
    descriptors = open_files(*EBPF)
    one, other = BccLoader().load(SOURCE, "profile", {}), LibbpfLoader().load(SOURCE, "profile", {})
    assert set(one.programs()) == set(other.programs())
    assert one.fd == one.program_fd("profile")
    for definition in describe(SOURCE.with_suffix(".o"))[0]:
        assert bpf_info(one.map_fd(definition.name)) == bpf_info(other.map_fd(definition.name))
    with pytest.raises(LoadError, match="'nothing'"):
        one.map_fd("nothing")
    with pytest.raises(LoadError, match="'nothing'"):
        one.program_fd("nothing")
    one.close()
    one.close()
    other.close()
    assert open_files(*EBPF) == descriptors


@pytest.mark.ebpf
def test_sizes_of_maps_are_as_asked_and_programs_are_left_out_as_asked() -> None:
    program = BccLoader().load(SOURCE, "profile", {"samples": 1 << 13}, without="off_cpu")
    assert bpf_info(program.map_fd("samples"))[3] == 1 << 13
    assert not any(name.startswith("off_cpu") for name in program.programs())
    program.close()
    with pytest.raises(LoadError, match="'nothing'"):
        BccLoader().load(SOURCE, "profile", {"nothing": 1})
    with pytest.raises(LoadError, match="'missing'"):
        BccLoader().load(SOURCE, "missing", {})


@pytest.mark.ebpf
def test_a_host_without_privileges_is_told_which_are_missing() -> None:
    """This user may read files, so that it finds what it has to execute, and nothing else."""
    only = "-all,+dac_read_search"
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", f"--bounding-set={only}"]
    code = "from collector.bpf.sampler import check; print(check('bcc'))"
    command = [*nobody, f"--inh-caps={only}", f"--ambient-caps={only}", sys.executable, "-c", code]
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    said = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    assert "cannot profile here" in said
    assert "needs root, or CAP_BPF and CAP_PERFMON" in said


@pytest.mark.ebpf
@pytest.mark.parametrize("garbage", [b"", b"\x7fELF" * 100])
def test_an_object_that_is_none_is_a_clear_error(
    garbage: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "profile.bpf.o").write_bytes(garbage)
    with pytest.raises(LoadError, match=r"profile\.bpf\.o cannot be read"):
        BccLoader().load(tmp_path / "profile.bpf.c", "profile", {})
    assert capfd.readouterr() == ("", "")


def bpf_info(fd: int) -> tuple[int, ...]:
    """Type, key size, value size, entries and flags of a map."""
    lines = Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines()
    fields = dict(line.split(":\t") for line in lines)
    names = ("map_type", "key_size", "value_size", "max_entries", "map_flags")
    return tuple(int(fields[name], 0) for name in names)


@pytest.mark.ebpf
def test_source_that_does_not_compile_is_a_clear_error(tmp_path: Path) -> None:
    shutil.copytree(SOURCE.parent, tmp_path / "bpf")
    source = tmp_path / "bpf" / SOURCE.name
    source.write_text(source.read_text().replace("count(NO_USER_STACK);", "count(NO_SUCH_COUNTER);"))
    with pytest.raises(LoadError, match=r"BCC cannot compile profile\.bpf\.c") as error:
        BccLoader().load(source, "profile", {})
    assert "NO_SUCH_COUNTER" in str(error.value)
    assert len(str(error.value).splitlines()) <= libbpf.LOG_LINES + 1


@pytest.mark.ebpf
def test_what_the_verifier_refuses_is_told_with_the_end_of_its_log() -> None:
    unknown_helper, leave = struct.pack("<BBhi", 0x85, 0, 0, 1 << 20), struct.pack("<BBhi", 0x95, 0, 0, 0)
    with pytest.raises(LoadError) as error:
        bcc.load("profile", PERF_EVENT, unknown_helper + leave)
    assert "the kernel refused program 'profile'" in str(error.value)
    assert "invalid func" in str(error.value)


@pytest.mark.ebpf
def test_garbage_is_refused_by_the_kernel() -> None:
    with pytest.raises(VerifierError):
        load_program("garbage", PERF_EVENT, bytes(range(64)))
    with pytest.raises(OSError, match="Invalid argument"):
        create_map(MapDefinition("garbage", 2, 0, 0, 0, 0))


def test_a_host_without_the_package_is_told_which_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bcc_compile, "_SYSTEM_PACKAGES", [])
    with pytest.raises(LoadError, match="apt install python3-bpfcc"):
        bcc_compile.import_bcc()


def test_another_package_of_that_name_is_not_taken_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bcc.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "bcc", raising=False)
    with pytest.raises(LoadError, match="is another one"):
        bcc_compile.import_bcc()


def test_on_another_machine_it_is_said_that_btf_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(LoadError, match="use a kernel with BTF"):
        BccLoader().load(SOURCE, "profile", {})


@pytest.mark.parametrize("said", [b"", b"{"])
def test_a_compiler_that_dies_is_a_clear_error(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    died = subprocess.CompletedProcess([], -9, said, b"Killed\n")
    monkeypatch.setattr("collector.bpf.loaders.bcc.subprocess.run", lambda *_, **__: died)
    with pytest.raises(LoadError, match=r"BCC ended with status -9(.|\n)*Killed"):
        bcc.compiled(SOURCE, ("none",), ())


def test_the_loader_is_chosen_by_whether_there_is_btf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libbpf, "BTF", tmp_path)
    assert isinstance(choose("auto"), LibbpfLoader)
    monkeypatch.setattr(libbpf, "BTF", tmp_path / "missing")
    assert isinstance(choose("auto"), BccLoader)
    assert isinstance(choose("libbpf"), LibbpfLoader)


INSTRUCTION = np.dtype([("operation", "u1"), ("registers", "u1"), ("offset", "<i2"), ("value", "<i4")])


@given(st.lists(st.tuples(st.sampled_from([0x18, 0x85, 0xB7, 0]), st.integers(0, 255), st.integers(0, 3)), max_size=20))
def test_only_references_to_maps_change_and_become_their_descriptors(rows: list[tuple[int, int, int]]) -> None:
    descriptors = [17, 3, 99, 4]
    code = np.array([(operation, registers, 5, value) for operation, registers, value in rows], INSTRUCTION)
    changed = np.frombuffer(with_maps(code.tobytes(), descriptors), INSTRUCTION)
    for before, after in zip(code.tolist(), changed.tolist(), strict=True):
        refers = before[0] == 0x18 and before[1] >> 4 == 1
        assert after == (*before[:3], descriptors[before[3]] if refers else before[3])


@pytest.mark.parametrize("place", [-1, 2])
def test_a_reference_to_no_map_is_refused(place: int) -> None:
    with pytest.raises(LoadError, match="a map that does not exist"):
        with_maps(struct.pack("<BBhi", 0x18, 0x11, 0, place), [3, 4])


def test_the_stub_headers_are_all_explained() -> None:
    folder = SOURCE.parent / "bcc"
    readme = (folder / "README.md").read_text()
    files = {str(path.relative_to(folder)) for path in folder.rglob("*.h")}
    assert len(files) > 5
    assert not [name for name in files if f"`{name}`" not in readme]
