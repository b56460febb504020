"""Call frame information made by hand: what every instruction and encoding means, and that nonsense harms nobody."""

import contextlib
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.elf.error import ElfError
from collector.unwind.cfi import expression as cfi_expression
from collector.unwind.cfi import leb
from collector.unwind.cfi import records as cfi_records
from collector.unwind.cfi import section as cfi
from collector.unwind.cfi.steps import (
    CALLEE_SAVED,
    CFA_END,
    CFA_NONE,
    CFA_PLT,
    CFA_RBP,
    CFA_RBP_DEREF,
    CFA_REGISTER,
    CFA_RSP,
    CFA_RSP_DEREF,
    CFA_SIGNAL,
    LOST,
    PUSHED,
    RETURN_REGISTER,
    SAVED_BY_RBP,
    UnwindSteps,
    at,
    overlay,
    pack,
)
from tests.collector.unwind.frame_sections import (
    CODE,
    RBP,
    RBP_AT_CFA,
    RBP_AT_RBP,
    RBP_LOST,
    RBP_SAME,
    RBX,
    Frames,
    record,
    saved,
    sleb,
    uleb,
)
from tests.examples import examples

START = 0x20000
CALLED = (CFA_RSP, 8, RBP_SAME, 0)  # what holds where a function begins
PUSH_RBP = bytes([0x41, 0x0E, 16, 0x86, 2])  # one byte on: CFA = rsp + 16, rbp at CFA - 16


def one(program: bytes, **how: Any) -> Frames:
    return Frames(**how).function(START, 100, program)


def expression(operations: bytes) -> bytes:
    return bytes([0x0F]) + uleb(len(operations)) + operations


def test_a_function_with_a_frame_pointer() -> None:
    frames = one(PUSH_RBP + bytes([0x43, 0x0D, 6, 0x44, 0xC6, 0x0C, 7, 8]))
    assert frames.rule(START) == CALLED
    assert frames.rule(START + 1) == frames.rule(START + 3) == (CFA_RSP, 16, RBP_AT_CFA, -16)
    assert frames.rule(START + 4) == frames.rule(START + 7) == (CFA_RBP, 16, RBP_AT_CFA, -16)
    assert frames.rule(START + 8) == frames.rule(START + 99) == CALLED
    assert frames.rule(START - 1) is None
    assert frames.rule(START + 100) is None


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (bytes([0x0E, 0x80, 0x02]), (CFA_RSP, 256, RBP_SAME, 0)),
        (bytes([0x13, 0x7E]), (CFA_RSP, 16, RBP_SAME, 0)),  # def_cfa_offset_sf, times the data alignment
        (bytes([0x12, 6, 0x7D]), (CFA_RBP, 24, RBP_SAME, 0)),  # def_cfa_sf
        (bytes([0x0C, 10, 0]), (CFA_REGISTER + 10, 0, RBP_SAME, 0)),
        (bytes([0x05, 6, 3]), (CFA_RSP, 8, RBP_AT_CFA, -24)),  # offset_extended
        (bytes([0x11, 6, 2]), (CFA_RSP, 8, RBP_AT_CFA, -16)),  # offset_extended_sf
        (bytes([0x11, 6, 0x7F]), (CFA_RSP, 8, RBP_LOST, 0)),  # above the CFA
        (bytes([0x2F, 6, 2]), (CFA_RSP, 8, RBP_LOST, 0)),  # GNU_negative_offset_extended: above the CFA
        (bytes([0x86, 2, 0x06, 6]), CALLED),  # restore_extended
        (bytes([0x86, 2, 0x08, 6]), CALLED),  # same_value
        (bytes([0x07, 6]), (CFA_RSP, 8, RBP_LOST, 0)),
        (bytes([0x09, 6, 3]), (CFA_RSP, 8, RBP_LOST, 0)),  # in another register
        (bytes([0x14, 6, 3]), (CFA_RSP, 8, RBP_LOST, 0)),  # val_offset
        (bytes([0x16, 6, 2, 0x77, 0]), (CFA_RSP, 8, RBP_LOST, 0)),  # val_expression
        (bytes([0x10, 6, 2, 0x76, 0x70]), (CFA_RSP, 8, RBP_AT_RBP, -16)),  # at rbp - 16
        (bytes([0x10, 6, 2, 0x77, 0]), (CFA_RSP, 8, RBP_LOST, 0)),
        (bytes([0x86, 0xFF, 0xFF, 0x03]), (CFA_RSP, 8, RBP_LOST, 0)),  # too far for a rule
        (bytes([0x07, 16]), (CFA_END, 0, RBP_SAME, 0)),
        (bytes([0x90, 2]), (CFA_NONE, 0, RBP_SAME, 0)),  # a return address that is not at CFA - 8
        (bytes([0x09, 16, 5]), (RETURN_REGISTER + 5, 8, RBP_SAME, 0)),  # in rdi, as of vfork
        (bytes([0x0D, 3, 0x09, 16, 5]), (CFA_NONE, 0, RBP_SAME, 0)),
        (bytes([0x09, 16, 17]), (CFA_NONE, 0, RBP_SAME, 0)),
        (bytes([0x0C, 17, 8]), (CFA_NONE, 0, RBP_SAME, 0)),  # not a general register
        (bytes([0x2E, 32, 0x83, 5, 0x14, 3, 2, 0x10, 3, 1, 0x30, 0x16, 7, 1, 0x31]), CALLED),  # of no interest
        (expression(b"\x76\x78\x06"), (CFA_RBP_DEREF, 0xFFF8, RBP_SAME, 0)),
        (expression(b"\x76\x78\x06\x23\x08"), (CFA_RBP_DEREF, 0x8FFF8, RBP_SAME, 0)),
        (expression(b"\x77\x20\x06\x38\x22"), (CFA_RSP_DEREF, 0x80020, RBP_SAME, 0)),
        (expression(b"\x76\x10"), (CFA_RBP, 16, RBP_SAME, 0)),
        (expression(b"\x7a\x00"), (CFA_REGISTER + 10, 0, RBP_SAME, 0)),
        (expression(b"\x77\x08\x80\x00\x3f\x1a\x3b\x2a\x33\x24\x22"), (CFA_PLT, 11, RBP_SAME, 0)),
        (expression(b"\x77\x08\x79\x00\x38\x1e\x22\x06"), (CFA_NONE, 0, RBP_SAME, 0)),  # a multiplication
        (expression(b"\x77\xa0\x01\x06"), (CFA_RSP_DEREF, 160, RBP_SAME, 0)),  # no signal frame: nobody says so
    ],
)
def test_every_instruction_means_what_the_standard_says(
    program: bytes, expected: tuple[int, int, int, int]
) -> None:  # fmt: skip
    assert one(program).rule(START + 50) == expected


def test_where_a_function_saved_registers() -> None:
    pushes = bytes([0x41, 0x83, 2, 0x41, 0x8C, 3, 0x41, 0x8D, 15, 0x41, 0x8E, 16, 0x41, 0xC3, 0x07, 15])
    frames = one(pushes)
    said = [saved(int(at(frames.steps(), np.array([START + i]))[0])) for i in range(6)]
    nothing = dict.fromkeys(CALLEE_SAVED, 0)
    assert said[:3] == [nothing, nothing | {RBX: 1}, nothing | {RBX: 1, 12: 2}]
    assert said[3] == nothing | {RBX: 1, 12: 2, 13: 14}
    assert said[4] == said[3] | {14: LOST}  # too far for a rule
    assert said[5] == said[4] | {RBX: 0, 15: LOST}


def test_pushes_behind_a_frame_pointer_are_one_rule() -> None:
    start = PUSH_RBP + bytes([0x43, 0x0D, 6])
    frames = one(start + bytes([0x42, 0x8F, 3, 0x42, 0x8E, 4, 0x42, 0x83, 5, 0x5F, 0x0C, 7, 8]))
    steps = frames.steps()
    assert steps.address.tolist() == [START, START + 1, START + 4, START + 10 + 31, START + 100]
    rule = int(at(steps, np.array([START + 4]))[0])
    assert rule & PUSHED
    assert saved(rule) == dict.fromkeys(CALLEE_SAVED, 0) | {RBP: 1, 15: 2, 14: 3, RBX: 4}
    far = one(start + bytes([0x61, 0x83, 3])).steps()
    assert far.address.tolist() == [START, START + 1, START + 4, START + 4 + 33, START + 100]
    assert not (far.rule[:-1] & np.uint64(PUSHED)).any()


def test_registers_that_lie_by_rbp_beside_others() -> None:
    by_rbp = bytes([0x10, 6, 2, 0x76, 0x00, 0x10, 3, 2, 0x76, 0x68, 0x8C, 2])  # rbp at rbp, rbx at rbp - 24, r12 by CFA
    rule = int(at(one(by_rbp).steps(), np.array([START]))[0])
    assert rule & SAVED_BY_RBP
    assert saved(rule) == dict.fromkeys(CALLEE_SAVED, 0) | {RBP: 1, RBX: 4, 12: LOST}
    assert saved(int(at(one(by_rbp[5:]).steps(), np.array([START]))[0])) == saved(rule) | {RBP: 0, RBX: LOST, 12: 1}


def test_advances_of_every_size() -> None:
    program = bytes([0x02, 0xF0, 0x0E, 16, 0x03, 0, 1, 0x0E, 24, 0x04, 0, 0, 1, 0, 0x0E, 32])
    frames = Frames().function(START, 0x20000, program)
    offsets = {0: 8, 0xEF: 8, 0xF0: 16, 0x1EF: 16, 0x1F0: 24, 0x101EF: 24, 0x101F0: 32}
    assert {offset: (frames.rule(START + offset) or (0, 0))[1] for offset in offsets} == offsets


def test_a_signal_frame() -> None:
    program = expression(b"\x77\xa0\x01\x06") + bytes([0x10, 16, 3, 0x77, 0xA8, 1, 0x10, 6, 3, 0x77, 0xF8, 0])
    assert one(program, augmentation="zRS").rule(START) == (CFA_SIGNAL, 0, 0, 0)


def test_personality_and_language_data_are_skipped() -> None:
    frames = Frames(augmentation="zPLR").function(START, 100, PUSH_RBP, extra=bytes(4))
    assert frames.rule(START + 1) == (CFA_RSP, 16, RBP_AT_CFA, -16)


@pytest.mark.parametrize("encoding", [0x00, 0x03, 0x04, 0x0B, 0x0C, 0x10, 0x1B, 0x1C])
def test_every_encoding_of_addresses(encoding: int) -> None:
    assert one(PUSH_RBP, encoding=encoding).rule(START) == CALLED


def test_addresses_relative_to_the_global_offset_table() -> None:
    frames = one(PUSH_RBP, encoding=0x3B)
    assert frames.rule(START) is None
    assert list(frames.steps(data_base=0x8000).address) == [START, START + 1, START + 100]


@pytest.mark.parametrize("encoding", [0x9B, 0x20, 0x50, 0xFF, 0x01])
def test_encodings_that_nobody_uses_for_functions_are_refused(encoding: int) -> None:
    frames = Frames()
    frames.data = frames.data.replace(b"\x10\x01\x1b", bytes([0x10, 1, encoding]))
    assert frames.function(START, 100).rule(START) is None


@pytest.mark.parametrize("version", [1, 3, 4])
@pytest.mark.parametrize("wide", [False, True])
def test_debug_frame_of_every_version(version: int, wide: bool) -> None:
    frames = one(PUSH_RBP, eh=False, augmentation="", version=version, wide=wide)
    assert frames.rule(START + 1) == (CFA_RSP, 16, RBP_AT_CFA, -16)


def test_eh_frame_ends_at_its_terminator_and_debug_frame_at_its_end() -> None:
    for eh, expected in ((True, None), (False, CALLED)):
        frames = Frames(eh=eh, augmentation="zR" if eh else "").function(START, 10)
        frames.data += bytes(4)
        frames.function(START + 10, 10)
        assert frames.rule(START + 10) == expected


def test_a_record_that_does_not_fit_ends_the_section() -> None:
    frames = Frames().function(START, 10)
    frames.data += struct.pack("<I", 1000)
    assert frames.rule(START) == CALLED


def test_equal_rules_of_neighbours_are_one_row() -> None:
    frames = Frames()
    for i in range(50):
        frames.function(START + 16 * i, 16)
    assert list(frames.steps().address) == [START, START + 800]


def test_of_functions_that_overlap_the_later_start_counts_and_the_first_of_equal_ones() -> None:
    frames = Frames().function(START, 100).function(START + 20, 10, bytes([0x0E, 16])).function(START, 50, b"\x07\x10")
    said = [frames.rule(START + offset) for offset in (0, 19, 20, 29, 30, 99)]
    inner = (CFA_RSP, 16, RBP_SAME, 0)
    assert said == [CALLED, CALLED, inner, inner, CALLED, CALLED]


def test_functions_outside_the_code_say_nothing_and_none_goes_beyond_it() -> None:
    frames = Frames(encoding=0x04)
    frames.function(0, 100).function(CODE[0] - 8, 16).function(CODE[1] - 8, 1 << 40).function((1 << 64) - 8, 100)
    assert frames.steps().address.tolist() == [CODE[1] - 8, CODE[1]]


def test_a_program_that_makes_no_sense_costs_only_its_function_the_rules() -> None:
    nonsense = [
        b"\x3f",
        b"\x0b",
        b"\x0a\x0b\x0b",
        b"\x0e" + b"\x80" * 20 + b"\x01",
        b"\x0f\x60\x77",
        b"\x04\x01",
        b"\x01",
    ]
    for program in nonsense:
        frames = Frames().function(START, 100, program.ljust(32, program[-1:])).function(START + 100, 10)
        assert frames.rule(START + 50) == (CFA_NONE, 0, 0, 0)
        assert frames.rule(START + 100) == CALLED


def test_states_are_remembered_in_each_other() -> None:
    push, pop = b"\x0a", b"\x0b"
    program = push + b"\x41\x0e\x10" + push + b"\x41\x0e\x18" + pop + b"\x41" + pop + b"\x41\x0e\x20\x41"
    offsets = [one(program).rule(START + i) for i in range(6)]
    assert [o and o[1] for o in offsets] == [8, 16, 16, 8, 32, 32]


def test_a_thousand_states_one_in_the_other_and_a_thousand_one_after_the_other() -> None:
    deep = b"\x0a\x41" * 1000 + b"\x0e\x10\x41" + b"\x0b\x41" * 1000
    long = b"\x0a\x41\x0e\x10\x41\x0b" * 1000
    frames = Frames().function(START, 0x3000, deep).function(START + 0x3000, 0x3000, long)
    assert frames.rule(START + 1000) == (CFA_RSP, 16, RBP_SAME, 0)
    assert frames.rule(START + 0x2FFF) == frames.rule(START + 0x3000 + 1998) == CALLED
    assert frames.rule(START + 0x3000 + 1999) == (CFA_RSP, 16, RBP_SAME, 0)


def test_more_records_than_any_linker_makes_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cfi_records, "MAX_RECORDS", 10)
    frames = Frames()
    for i in range(11):
        frames.function(START + i, 1)
    with pytest.raises(ElfError, match="records"):
        frames.steps()


REGISTERS = st.sampled_from(CALLEE_SAVED)
INSTRUCTIONS = st.one_of(
    st.tuples(st.just("advance"), st.integers(0, 70_000)),
    st.tuples(st.just("cfa"), st.sampled_from([6, 7, 10]), st.integers(0, 1 << 20)),
    st.tuples(st.just("cfa_register"), st.sampled_from([6, 7])),
    st.tuples(st.just("cfa_offset"), st.integers(0, 1 << 20)),
    st.tuples(st.just("saved"), REGISTERS, st.integers(-3, 20)),
    st.tuples(st.sampled_from(["undefined", "same", "restore"]), REGISTERS),
    st.sampled_from([("remember",), ("back",), ("other",)]),
)


@pytest.mark.slow
@settings(max_examples=examples(3))
@given(st.lists(st.lists(INSTRUCTIONS, max_size=40), min_size=1, max_size=4), st.booleans())
def test_many_programs_at_once_mean_what_one_after_the_other_means(
    programs: list[list[tuple[Any, ...]]], small_slices: bool
) -> None:
    frames = Frames(encoding=0x0C, initial=RSP_8 + bytes([0x86, 2]))
    code = np.array([[START, START + (1 << 40)]], np.int64)
    start, expected = START, {}
    for program in programs:
        encoded, said = _encoded_and_said(program)
        length = max(said) + 5
        frames.function(start, length, encoded)
        expected |= {start + offset: rule for offset, rule in said.items()}
        start += length
    section = cfi_records.FrameSection(cfi_records.padded(frames.data), frames.vaddr, True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cfi, "SLICE_BYTES", 16 if small_slices else cfi.SLICE_BYTES)
        steps = cfi.steps(section, cfi_records.read(section), code)
    found = at(steps, np.array(list(expected))).tolist()
    assert [rule for rule, said in zip(found, expected.values(), strict=True) if not means(rule, said)] == []


RSP_8 = bytes([0x0C, 7, 8, 0x90, 1])
INITIAL = {RBP: 1}


def _encoded_and_said(program: list[tuple[Any, ...]]) -> tuple[bytes, dict[int, int]]:
    """The bytes of a program, and the rules it means by offset; one instruction after the other."""
    encoded, location, stack = b"", 0, []
    register, offset, places = 7, 8, dict(INITIAL)
    said = {}
    for name, *operands in program:
        if name == "advance":
            (by,) = operands
            sizes = (
                (64, bytes([0x40 | by & 63])),
                (256, struct.pack("<BB", 2, by & 255)),
                (65536, struct.pack("<BH", 3, by & 65535)),
            )
            encoded += next((code for below, code in sizes if by < below), struct.pack("<BI", 4, by))
            location += by
        elif name == "cfa":
            register, offset = operands
            encoded += b"\x0c" + uleb(register) + uleb(offset)
        elif name == "cfa_register":
            (register,) = operands
            encoded += b"\x0d" + uleb(register)
        elif name == "cfa_offset":
            (offset,) = operands
            encoded += b"\x0e" + uleb(offset)
        elif name == "saved":
            number, words = operands
            places[number] = words - 1 if 2 <= words <= LOST else LOST
            encoded += bytes([0x11, number]) + sleb(words)
        elif name == "undefined":
            places[operands[0]], encoded = LOST, encoded + bytes([0x07, operands[0]])
        elif name == "same":
            places[operands[0]], encoded = 0, encoded + bytes([0x08, operands[0]])
        elif name == "restore":
            places[operands[0]], encoded = INITIAL.get(operands[0], 0), encoded + bytes([0xC0 | operands[0]])
        elif name == "remember":
            stack.append((register, offset, dict(places)))
            encoded += b"\x0a"
        elif name == "back" and stack:
            register, offset, places = stack.pop()
            encoded += b"\x0b"
        elif name == "other":
            places[RBX] = LOST
            encoded += b"\x83\x05\x2e\x10\x10\x03\x02\x76\x41\x00"
        kind = {6: CFA_RBP, 7: CFA_RSP}.get(register, CFA_REGISTER + register)
        said[location] = packed(kind, offset, places)
    return encoded, said or {0: packed(CFA_RSP, 8, INITIAL)}


def means(rule: int, said: int) -> bool:
    """Whether a rule means that, or has pushes that follow as well."""
    if not rule & PUSHED:
        return rule == said
    before, after = saved(said), saved(rule)
    without = 0xFFFFFFFF0000007F
    return rule & without == said & without and all(before[r] in (0, after[r]) and after[r] != LOST for r in after)


def packed(kind: int, offset: int, places: dict[int, int]) -> int:
    return pack(kind, offset) | sum(places.get(number, 0) << 8 + 4 * i for i, number in enumerate(CALLEE_SAVED))


@pytest.mark.slow
@settings(max_examples=examples(3))
@given(st.lists(st.binary(max_size=60), max_size=8), st.booleans())
def test_programs_of_garbage_are_survived(programs: list[bytes], eh: bool) -> None:
    frames = Frames(eh=eh, augmentation="zR" if eh else "")
    for i, program in enumerate(programs):
        frames.function(START + 16 * i, 16, program)
    address = frames.steps().address
    assert (np.diff(address) > 0).all()


@pytest.mark.slow
@settings(max_examples=examples(3))
@given(st.binary(max_size=300), st.booleans(), st.booleans())
def test_sections_of_garbage_are_survived(data: bytes, eh: bool, records: bool) -> None:
    section = cfi_records.FrameSection(cfi_records.padded(record(data) * 3 if records else data), 0x4000, eh)
    with contextlib.suppress(ElfError):
        cfi.steps(section, cfi_records.read(section), np.array([CODE], np.int64))
        offsets = np.frombuffer(data[: len(data) // 4 * 4], "<i4").astype(np.int64)
        cfi.steps(section, cfi_records.read_at(section, offsets), np.array([CODE], np.int64))


@given(st.binary(max_size=40))
def test_expressions_of_garbage_are_survived(data: bytes) -> None:
    kind, offset = cfi_expression.cfa(data)
    assert 0 <= kind < 32
    assert -(1 << 31) <= offset < 1 << 31
    cfi_expression.parse(b"\x76" + data)


@given(st.lists(st.integers(-(1 << 54), 1 << 54), max_size=30))
def test_numbers_of_any_size_are_read(numbers: list[int]) -> None:
    for encode, read in ((sleb, leb.signed), (uleb, leb.unsigned)):
        said = [abs(n) if encode is uleb else n for n in numbers]
        parts = [encode(n) for n in said]
        starts = np.cumsum([0, *map(len, parts)])
        values, ends = read(cfi_records.padded(b"".join(parts)), starts[:-1])
        assert values.tolist() == said
        assert ends.tolist() == starts[1:].tolist()


steps_of = st.dictionaries(st.integers(0, 60), st.sampled_from([0, 1, 2, (1 << 64) - 1]), max_size=12).map(
    lambda said: UnwindSteps(np.array(sorted(said), np.int64), np.array([said[a] for a in sorted(said)], np.uint64))
)


@given(steps_of, steps_of)
def test_the_lower_of_two_sources_counts_where_the_upper_one_says_nothing(
    upper: UnwindSteps, lower: UnwindSteps
) -> None:
    everywhere = np.arange(-1, 70)
    first, second = at(upper, everywhere), at(lower, everywhere)
    expected = np.where(first == (1 << 64) - 1, second, first)
    found = overlay(upper, lower)
    assert at(found, everywhere).tolist() == expected.tolist()
