"""Fields of the kernel's structures, found out beside what its BTF says of them."""

from dataclasses import asdict, fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.bpf.loaders import task_layout
from collector.bpf.loaders.bcc import check_layout
from collector.bpf.loaders.kernel_reader import KernelReader, load_reader
from collector.bpf.loaders.loader import LoadError
from collector.bpf.loaders.task_layout import TaskLayout, find_task_layout
from tests.collector.bpf.loaders.btf import of_this_kernel

IN_BTF = {
    "tgid": ("task_struct", "tgid"),
    "real_parent": ("task_struct", "real_parent"),
    "mm": ("task_struct", "mm"),
    "start_code": ("mm_struct", "start_code"),
    "start_stack": ("mm_struct", "start_stack"),
    "fsbase": ("task_struct", "thread.fsbase"),
    "stack": ("task_struct", "stack"),
    "state": ("task_struct", "__state"),
}
OFFSETS = st.sets(st.tuples(st.integers(0, 1000).map(lambda i: 8 * i)))


@pytest.mark.ebpf
def test_every_field_is_found_where_the_kernel_says_that_it_lies() -> None:
    btf = of_this_kernel()
    found = find_task_layout()
    truth = {name: btf.offset(*where) or btf.offset("task_struct", "state") for name, where in IN_BTF.items()}
    assert {name: offset for name, offset in asdict(found).items() if name != "registers"} == truth
    assert found.registers in (16384 - 168, 16384 - 168 - 16, 32768 - 168)


@pytest.mark.ebpf
def test_memory_that_cannot_be_read_ends_what_is_read_and_nothing_else() -> None:
    with load_reader() as program, KernelReader(program) as kernel:
        assert kernel.read(0, 100) == b""
        assert kernel.read(1 << 63, 100) == b""  # no address at all
        assert kernel.read((1 << 64) - 8, 100) == b""
        assert len(kernel.read(kernel.task, 3000)) == 3000


@given(OFFSETS)
def test_a_field_that_may_be_at_more_than_one_place_is_not_guessed(rows: set[tuple[int, ...]]) -> None:
    only, of_pair = task_layout._only(rows), task_layout._first_of_pair(rows)
    assert (only is None) == (len(rows) != 1)
    assert of_pair is None or rows - {of_pair} <= {(of_pair[0] + 8,)}
    assert of_pair is None or of_pair in rows


@pytest.mark.parametrize("missing", ["mm", "tgid"])
def test_a_kernel_whose_processes_cannot_be_told_apart_is_refused(missing: str) -> None:
    known = dict.fromkeys((field.name for field in fields(TaskLayout)), 8)
    with pytest.raises(LoadError, match="not found: use a kernel with BTF"):
        check_layout(TaskLayout(**(known | {missing: None})))


@pytest.mark.parametrize("missing", ["fsbase", "registers", "real_parent", "state"])
def test_what_works_less_without_a_field_is_said(missing: str, caplog: pytest.LogCaptureFixture) -> None:
    known = dict.fromkeys((field.name for field in fields(TaskLayout)), 8)
    check_layout(TaskLayout(**(known | {missing: None})))
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        f"this kernel's task_struct.{missing} is not found"
    ]


def test_the_stub_headers_name_every_offset_that_is_looked_for() -> None:
    header = (Path(task_layout.__file__).parents[3] / "bpf" / "bcc" / "kernel_layout.h").read_text()
    for field in fields(TaskLayout):
        assert field.name == "registers" or f"#ifndef OFFSET_{field.name.upper()}\n" in header
