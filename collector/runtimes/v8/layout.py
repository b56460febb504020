"""The structures of a build of V8: offsets in bytes, and numbers of types.

V8 exports most of them as constants `v8dbg_*` for debuggers (its gen-postmortem-metadata). What it does not export
is a table by version: the last type of functions before 12 (src/objects/objects-definitions.h), what a ScopeInfo has
where (src/objects/scope-info.tq), the IDs of functions (src/objects/shared-function-info.tq), and where code has its
tables (src/objects/code.h, bytecode-array.tq, deoptimization-data.h). struct v8_process (bpf/v8.h) holds what the
program needs.
"""

import struct
from collections.abc import Callable
from dataclasses import astuple, dataclass

OLDEST, NEWEST = (9, 4), (14, 6)
"""The versions of V8 in Node 16 and Node 26."""

_HASHED_LOCALS = (10, 0)  # those of a ScopeInfo with many; and a function has no slot for its receiver any more
_UNIQUE_ID = (12, 0)
_POSITIONS_FIRST = (12, 9)  # a ScopeInfo has them before the names
_MERGED_FLAGS = (11, 5)  # of Code
_TWO_FLAGS = (14, 0)  # in tables of positions
_FUNCTION_TYPES = 17  # JS_FUNCTION_TYPE and the constructors, where the last one is not exported
_MAX_OFFSET = 128

_SHARED, _FUNCTION, _CODE = "class_SharedFunctionInfo__", "class_JSFunction__", "class_Code__instruction_"
_BYTE_ARRAYS = "ByteArray__BYTE_ARRAY", "TrustedByteArray__TRUSTED_BYTE_ARRAY"
_WORD_ARRAYS = (
    "FixedArray__FIXED_ARRAY",
    "WeakFixedArray__WEAK_FIXED_ARRAY",
    "ProtectedFixedArray__PROTECTED_FIXED_ARRAY",
    "TrustedFixedArray__TRUSTED_FIXED_ARRAY",
    "TrustedWeakFixedArray__TRUSTED_WEAK_FIXED_ARRAY",
)
_OF_ALL = {
    "TaggedSize": 8,
    "SmiShiftSize": 31,
    "SmiValueShift": 1,
    "HeapObjectTag": 1,
    "HeapObjectTagMask": 3,
    "StringRepresentationMask": 7,
    "StringEncodingMask": 8,
    "OneByteStringTag": 8,
    "SeqStringTag": 0,
    "ConsStringTag": 1,
    "ExternalStringTag": 2,
    "SlicedStringTag": 3,
    "ThinStringTag": 5,
    "off_fp_context_or_frame_type": -8,
    "off_fp_function": -16,
    "class_HeapObject__map__Map": 0,
    "class_Map__instance_type__uint16_t": 12,
    "class_String__length__int32_t": 12,
    "class_SeqOneByteString__chars__char": 16,
    "class_SeqTwoByteString__chars__char": 16,
    "class_ConsString__first__String": 16,
    "class_ConsString__second__String": 24,
    "class_ExternalString__resource__Object": 16,
    "class_SlicedString__parent__String": 16,
    "class_SlicedString__offset__SMI": 24,
    "class_ThinString__actual__String": 16,
    "class_Script__source__Object": 8,
    "class_Script__name__Object": 16,
    "class_Script__line_ends__Object": 56,
    "class_FixedArrayBase__length__SMI": 8,
    "class_FixedArray__data__uintptr_t": 16,
}
"""The constants that all supported versions have in common."""
_MISSING_BEFORE = {"class_Script__source__Object": (10, 0)}


class V8LayoutError(ValueError):
    """This build's frames cannot be read; the message says why."""


@dataclass(frozen=True)
class V8Walk:
    """What the eBPF program needs: struct v8_layout."""

    function_shared: int  # JSFunction: its SharedFunctionInfo
    function_first: int  # types of functions
    function_last: int
    shared_type: int
    shared_flags: int  # SharedFunctionInfo; numbers of parameters lie 8 bytes before
    shared_id: int  # 4 bytes that tell all functions apart, or those of a script
    shared_script: int  # then its Script, which has an ID; else 0
    bytecode_type: int  # BytecodeArray

    def pack(self) -> bytes:
        return struct.pack("=8I", *astuple(self))


@dataclass(frozen=True)
class V8Text:
    """What reading a function's name and place needs."""

    shared_name: int  # SharedFunctionInfo: a String or a ScopeInfo
    shared_script: int
    scope_type: int
    script_type: int
    array_type: int  # FixedArray
    strings_end: int  # types of strings are below this one
    hashed_locals: bool  # a ScopeInfo: _HASHED_LOCALS
    positions_first: bool


@dataclass(frozen=True)
class V8Tables:
    """What reading lines needs. If a build has another layout, objects have other types, and no lines are read."""

    byte_types: frozenset[int]  # of arrays
    word_types: frozenset[int]
    bytecodes: int  # BytecodeArray: its first one
    bytecode_positions: int
    position_flags: int  # bits before an offset in a table of positions
    code_type: int
    code_deoptimization: (
        int  # Code: where it keeps calls that were inlined; or the BytecodeArray from which it was made
    )
    code_positions: int
    code_start: int  # the address of its instructions; 0: they follow it
    code_size: int  # 4 bytes: theirs
    stream_type: int  # of the object that has the instructions
    stream_bytes: int  # before them
    inlined: int  # deoptimization data: element with the number of functions that were inlined
    literals: int
    shared: int
    calls: int


@dataclass(frozen=True)
class V8Layout:
    walk: V8Walk
    text: V8Text
    tables: V8Tables


def layout(version: tuple[int, int], constant: Callable[[str], int | None]) -> V8Layout:
    """Returns the layout of the build with this version; `constant` returns the value of an exported v8dbg_* by the
    rest of its name. Raises V8LayoutError."""
    name = f"V8 {version[0]}.{version[1]}"
    if not OLDEST <= version <= NEWEST:
        raise V8LayoutError(f"{name}: expected {_name(OLDEST)} to {_name(NEWEST)}")
    for what, expected in _OF_ALL.items():
        value = constant(what)
        if value != expected and not (value is None and version < _MISSING_BEFORE.get(what, (0, 0))):
            reason = "pointers are compressed" if what == "TaggedSize" and value == 4 else f"{what} is {value}"
            raise V8LayoutError(f"{name}: {reason}")

    def one(*names: str) -> int:
        value = next((value for what in names if (value := constant(what)) is not None), None)
        if value is None:
            raise V8LayoutError(f"{name}: expected {names[0]}")
        return value

    first = one("FirstJSFunctionType", "type_JSFunction__JS_FUNCTION_TYPE")
    flags = one(f"{_SHARED}flags__int")
    script = one(
        f"{_SHARED}script__Tagged_HeapObject_",
        f"{_SHARED}raw_script__Tagged_Object_",
        f"{_SHARED}script_or_debug_info__HeapObject",
    )
    result = V8Layout(
        V8Walk(
            function_shared=one(f"{_FUNCTION}shared__SharedFunctionInfo"),
            function_first=first,
            function_last=constant("LastJSFunctionType") or first + _FUNCTION_TYPES - 1,
            shared_type=one("type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE"),
            shared_flags=flags,
            shared_id=flags + (8 if version >= _UNIQUE_ID else 4),
            shared_script=0 if version >= _UNIQUE_ID else script,
            bytecode_type=one("type_BytecodeArray__BYTECODE_ARRAY_TYPE"),
        ),
        V8Text(
            shared_name=one(
                f"{_SHARED}name_or_scope_info__Tagged_NameOrScopeInfoT_",
                f"{_SHARED}name_or_scope_info__Tagged_Object_",
                f"{_SHARED}name_or_scope_info__Object",
            ),
            shared_script=script,
            scope_type=one("type_ScopeInfo__SCOPE_INFO_TYPE"),
            script_type=one("type_Script__SCRIPT_TYPE"),
            array_type=one("type_FixedArray__FIXED_ARRAY_TYPE"),
            strings_end=-one("IsNotStringMask"),
            hashed_locals=version >= _HASHED_LOCALS,
            positions_first=version >= _POSITIONS_FIRST,
        ),
        _tables(version, constant),
    )
    _check(result, name)
    return result


def _tables(version: tuple[int, int], constant: Callable[[str], int | None]) -> V8Tables:
    def one(default: int, *names: str) -> int:
        return next((value for what in names if (value := constant(what)) is not None), default)

    def types(*names: str) -> frozenset[int]:
        return frozenset(value for what in names if (value := constant(f"type_{what}_TYPE")) is not None)

    code_type, newer = one(0, "type_Code__CODE_TYPE"), constant("class_BytecodeArray__wrapper__Tagged_BytecodeWrapper_")
    table = "class_Code__source_position_table__"
    positions = one(16 if newer else 24, f"{table}ByteArray", f"{table}Tagged_ByteArray_")
    apart = constant("type_InstructionStream__INSTRUCTION_STREAM_TYPE") is not None
    start = one(positions + 16 if apart else 0, f"{_CODE}start__Address")
    shared = one(6, "DeoptimizationDataSharedFunctionInfoIndex", "DeoptimizationDataWrappedSharedFunctionInfoIndex")
    return V8Tables(
        byte_types=types(*_BYTE_ARRAYS),
        word_types=types(*_WORD_ARRAYS),
        bytecodes=one(54, "class_BytecodeArray__data__uintptr_t"),
        bytecode_positions=24 if newer else 32,
        position_flags=2 if version >= _TWO_FLAGS else 1,
        code_type=code_type,
        code_deoptimization=positions - 8,
        code_positions=positions,
        code_start=start,
        code_size=one(start + (12 if version >= _MERGED_FLAGS else 16), f"{_CODE}size__int"),
        stream_type=one(code_type, "type_InstructionStream__INSTRUCTION_STREAM_TYPE"),
        stream_bytes=one(0, "class_InstructionStream__instruction_start__uintptr_t", f"{_CODE}start__uintptr_t"),
        inlined=1,
        literals=one(2, "DeoptimizationDataLiteralArrayIndex"),
        shared=shared,
        calls=one(shared + 1, "DeoptimizationDataInliningPositionsIndex"),
    )


def _check(checked: V8Layout, name: str) -> None:
    """Checks what the program and the reader rely on. Raises V8LayoutError."""
    walk, text = checked.walk, checked.text
    offsets = walk.function_shared, walk.shared_flags, walk.shared_id, text.shared_name, text.shared_script
    types = [walk.function_first, walk.function_last, walk.shared_type, walk.bytecode_type]
    types += [text.scope_type, text.script_type, text.array_type]
    if not all(8 <= at < _MAX_OFFSET for at in offsets) or any(at % 4 for at in offsets) or walk.shared_flags < 16:
        raise V8LayoutError(f"{name}: its offsets are out of range")
    if not all(text.strings_end <= number < 1 << 16 for number in types) or text.strings_end not in (64, 128):
        raise V8LayoutError(f"{name}: its numbers of types are out of range")


def _name(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
