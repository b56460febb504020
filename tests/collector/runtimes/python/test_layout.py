"""Offsets of CPython's structures: which builds are read, and that no others are."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.runtimes.python.layout import _FIELDS, COOKIE, OFFSETS_BYTES, LayoutError, PythonLayout, _field, layout

# What CPython 3.14.10 of Debian publishes, from the version on.
PUBLISHED_3_14 = (
    51251952, 0, 316616, 784, 808, 225864, 7280, 7272, 7344, 7360, 7408, 7688, 7672, 7680, 16, 7784, 0, 7800, 7792,
    7992, 0, 832, 0, 8, 16, 72, 152, 160, 232, 32, 88, 8, 0, 56, 80, 74, 64, 0, 216, 112, 120, 128, 136, 68, 52, 96,
    104, 208, 0, 16, 8, 416, 24, 88, 168, 40, 32, 16, 40, 24, 16, 200, 24, 40, 32, 48, 32, 40, 24, 16, 32, 16, 24, 40,
    16, 32, 64, 32, 16, 40, 264, 192, 160, 24, 72, 67, 0, 8, 24, 304,
)  # fmt: skip


def published(*values: int) -> bytes:
    return (COOKIE + struct.pack(f"<{len(values)}Q", *values)).ljust(OFFSETS_BYTES, b"\0")


def test_offsets_come_from_the_build_itself_where_it_publishes_them() -> None:
    found = layout(0x030E0AF0, -255072, published(*PUBLISHED_3_14))
    walk, text = found.walk, found.text
    assert (walk.interpreters, walk.threads, walk.interpreter_next, walk.thread_id) == (808, 7344, 7272, 152)
    assert (walk.frame_owner, walk.frame_instruction, walk.code_traceable, walk.code_bytecode) == (74, 56, 192, 208)
    assert (text.code_file, text.code_lines, text.text_ascii, text.text_compact) == (112, 136, 40, 56)


def test_threads_without_the_gil_have_copies_of_the_bytecode_and_strings_a_byte_more() -> None:
    """The offsets of a build of 3.14 without the GIL, as far as they differ in a way that matters: `co_tlbc`."""
    names = [name for since, name in map(_field, _FIELDS.split()) if since <= 14]
    offsets = dict(zip(names, PUBLISHED_3_14[1 : 1 + len(names)], strict=True))
    offsets |= {"free_threaded": 1, "code.co_tlbc": 224, "code.co_code_adaptive": 232, "frame.tlbc_index": 76}
    found = layout(0x030E0AF0, 0, published(PUBLISHED_3_14[0], *offsets.values()))
    assert (found.walk.code_copies, found.walk.frame_copy, found.walk.code_traceable) == (224, 76, 208)
    assert (found.text.text_kind, layout(0x030E0AF0, 0, published(*PUBLISHED_3_14)).text.text_kind) == (8, 2)
    offsets["code.co_tlbc"] = 200
    with pytest.raises(LayoutError, match="no version has"):
        layout(0x030E0AF0, 0, published(PUBLISHED_3_14[0], *offsets.values()))


def test_layouts_have_the_size_that_the_program_knows() -> None:
    for version in (0x030600F0, 0x030A00F0, 0x030B07F0, 0x030C01F0):
        assert len(layout(version, 0, b"").walk.pack()) == 96


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        (0x030500F0, "CPython 3.5.0: expected 3.6 to 3.15"),
        (0x03100000, "CPython 3.16.0: expected 3.6 to 3.15"),
        (0x030C00B1, "CPython 3.12.0 is an alpha or beta release"),
        (0x030D00F0, "_PyRuntime does not begin with offsets"),
    ],
)
def test_other_versions_are_refused_with_the_reason(version: int, reason: str) -> None:
    with pytest.raises(LayoutError, match=reason):
        layout(version, 0, b"")


@given(st.sampled_from([0x030D00F0, 0x030E0AF0, 0x030F02F0]), st.lists(st.integers(0, 2**64 - 1), max_size=100))
def test_offsets_that_make_no_sense_are_refused(version: int, values: list[int]) -> None:
    with pytest.raises(LayoutError):
        layout(version, 0, published(version, *values))


@pytest.mark.parametrize("code_type", [2**63, -(2**63) - 1, 2**64 - 1, 2**48 + 1])
def test_a_type_that_no_file_has_there_is_refused(code_type: int) -> None:
    """The program's table has no room for it, and those of other processes would not be written either."""
    with pytest.raises(LayoutError, match="out of range"):
        layout(0x030B07F0, code_type, b"")


@given(st.integers(1, len(PUBLISHED_3_14) - 1), st.integers(0, 2**64 - 1) | st.integers(0, 300))
def test_what_is_accepted_keeps_to_what_the_program_reads(at: int, value: int) -> None:
    values = list(PUBLISHED_3_14)
    values[at] = value
    try:
        found: PythonLayout = layout(0x030E0AF0, 0, published(*values))
    except LayoutError:
        return
    walk = found.walk
    assert max(walk.frame_code, walk.frame_previous, walk.frame_instruction) + 8 <= 80
    assert walk.frame_owner < 80
    assert max(walk.code_line, walk.code_name, walk.code_traceable, walk.object_type) + 8 <= walk.code_bytecode <= 255
    walk.pack()
