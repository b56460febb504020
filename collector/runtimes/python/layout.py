"""Offsets in the internal structures of a build of CPython, in bytes.

Up to 3.12 a table has them, the same for every release of a minor version (offsetof() in Include/frameobject.h,
pystate.h and code.h, later in Include/cpython/ and Include/internal/pycore_*.h). Since 3.13 each build publishes its
own, in `struct _Py_DebugOffsets` at the beginning of _PyRuntime (pycore_runtime.h, since 3.14 pycore_debug_offsets.h).
struct python_layout (bpf/python.h) holds those that the program needs.
"""

import struct
from collections.abc import Callable
from dataclasses import astuple, dataclass
from functools import partial

from collector.runtimes.python.lines import LineFormat

OFFSETS_BYTES = 16 + 8 * 128  # of _PyRuntime, enough for its _Py_DebugOffsets
COOKIE = b"xdebugpy"

_FRAME_BYTES, _FRAME_OBJECT_BYTES = 80, 128  # PYTHON_FRAME_BYTES and PYTHON_FRAME_OBJECT_BYTES of the program
_MAX_CODE_BYTES = 255
_MAX_OFFSET = 1 << 24
_MAX_DISTANCE = 1 << 48  # of two variables of a file
_VERSION_BEHIND_LINE = 24  # co_firstlineno, five more int, co_version (since 3.12), co_localsplusnames
_FINAL = 0xC0  # PY_VERSION_HEX: release candidates and releases; betas differ

# The fields of _Py_DebugOffsets as uint64, without cookie and version. In braces: since which minor version.
_FIELDS = """
free_threaded
runtime.size runtime.finalizing runtime.interpreters_head
interpreter.size interpreter.id interpreter.next interpreter.threads_head {14}interpreter.threads_main interpreter.gc
interpreter.imports_modules interpreter.sysdict interpreter.builtins interpreter.ceval_gil interpreter.gil
interpreter.gil_enabled interpreter.gil_locked interpreter.gil_holder {14}interpreter.code_generation
{14}interpreter.tlbc_generation
thread.size thread.prev thread.next thread.interp thread.current_frame {15}thread.base_frame {15}thread.last_profiled
{15}thread.last_profiled_seq thread.thread_id thread.native_thread_id thread.datastack_chunk thread.status
{15}thread.holds_gil {15}thread.gil_requested {15}thread.current_exception {15}thread.exc_state
{15}err_stackitem.exc_value
frame.size frame.previous frame.executable frame.instr_ptr frame.localsplus frame.owner {14}frame.stackpointer
{14}frame.tlbc_index
code.size code.filename code.name code.qualname code.linetable code.firstlineno code.argcount code.localsplusnames
code.localspluskinds code.co_code_adaptive {14}code.co_tlbc
object.size object.ob_type
type.size type.tp_name type.tp_repr type.tp_flags {15}type.tp_basicsize {15}type.tp_dictoffset
{15}heap_type.size {15}heap_type.ht_cached_keys
tuple.size tuple.ob_item tuple.ob_size list.size list.ob_item list.ob_size
{14}set.size {14}set.used {14}set.table {14}set.mask
dict.size dict.ma_keys dict.ma_values float.size float.ob_fval long.size long.lv_tag long.ob_digit
bytes.size bytes.ob_size bytes.ob_sval unicode.size unicode.state unicode.length unicode.asciiobject_size
"""


class LayoutError(ValueError):
    """This build's frames cannot be read; the message says why."""


@dataclass(frozen=True)
class Walk:
    """The offsets that the eBPF program needs: struct python_layout."""

    code_type: int  # PyCode_Type - _PyRuntime; 0 if it is not known
    interpreters: int
    threads: int
    interpreter_next: int
    thread_next: int
    thread_id: int
    thread_frame: int
    cframes: int
    cframe_frame: int
    cframe_previous: int
    frame_code: int
    frame_previous: int
    frame_instruction: int
    frame_owner: int  # 0 if there is none: up to 3.10
    frame_is_entry: int
    object_type: int
    code_line: int
    code_name: int
    code_traceable: int
    code_bytecode: int
    code_version: int  # 0 if there is none
    code_copies: int = 0  # 0 if there are none
    frame_copy: int = 0

    def pack(self) -> bytes:
        return struct.pack("=q22I", *astuple(self))


@dataclass(frozen=True)
class Text:
    """The offsets that reading a code object's names and lines needs."""

    code_line: int  # PyCodeObject: int
    code_version: int  # 0 if there is none
    code_file: int  # its str and bytes objects
    code_name: int
    code_lines: int
    code_bytecode: int  # where the part ends that is read
    text_length: int  # PyASCIIObject
    text_state: int
    text_kind: int  # the first bit of the kind in the state
    text_ascii: int  # where the characters are
    text_compact: int
    bytes_length: int  # PyBytesObject
    bytes_data: int
    line_format: LineFormat


@dataclass(frozen=True)
class PythonLayout:
    walk: Walk
    text: Text


def layout(version: int, code_type: int, offsets: bytes) -> PythonLayout:
    """Returns the layout of the build with this PY_VERSION_HEX. `code_type`: PyCode_Type - _PyRuntime, 0 if it is not
    known; `offsets`: the first OFFSETS_BYTES of its _PyRuntime. Raises LayoutError."""
    minor = version >> 16 & 0xFF
    name = f"{version >> 24}.{minor}.{version >> 8 & 0xFF}"
    if version >> 24 != 3 or not 6 <= minor <= 15:
        raise LayoutError(f"CPython {name}: expected 3.6 to 3.15")
    if version & 0xF0 < _FINAL:
        raise LayoutError(f"CPython {name} is an alpha or beta release")
    result = _TABLE[minor](code_type) if minor in _TABLE else _published(minor, version, code_type, offsets)
    _check(result, name)
    return result


def _published(minor: int, version: int, code_type: int, offsets: bytes) -> PythonLayout:
    fields = [field for field in map(_field, _FIELDS.split()) if field[0] <= minor]
    if offsets[:8] != COOKIE or len(offsets) < 16 + 8 * len(fields):
        raise LayoutError("_PyRuntime does not begin with offsets")
    if struct.unpack_from("<Q", offsets, 8)[0] != version:
        raise LayoutError("_PyRuntime has the offsets of another version")
    o = dict(zip((name for _, name in fields), struct.unpack_from(f"<{len(fields)}Q", offsets, 16), strict=True))
    version_at, copies = o["code.localsplusnames"] - 4, o.get("code.co_tlbc", 0)
    behind_head = o["code.co_code_adaptive"] - (8 if copies else 0)
    if copies not in (0, behind_head) or not o["frame.owner"]:
        raise LayoutError("_PyRuntime has offsets that no version has")
    walk = Walk(
        code_type=code_type,
        interpreters=o["runtime.interpreters_head"],
        threads=o["interpreter.threads_head"],
        interpreter_next=o["interpreter.next"],
        thread_next=o["thread.next"],
        thread_id=o["thread.thread_id"],
        thread_frame=o["thread.current_frame"],
        cframes=0,
        cframe_frame=0,
        cframe_previous=0,
        frame_code=o["frame.executable"],
        frame_previous=o["frame.previous"],
        frame_instruction=o["frame.instr_ptr"],
        frame_owner=o["frame.owner"],
        frame_is_entry=0,
        object_type=o["object.ob_type"],
        code_line=o["code.firstlineno"],
        code_name=o["code.qualname"],
        code_traceable=behind_head - 16,  # int _co_firsttraceable; void *co_extra; here
        code_bytecode=o["code.co_code_adaptive"],
        code_version=version_at if version_at == o["code.firstlineno"] + _VERSION_BEHIND_LINE else 0,
        code_copies=copies,
        frame_copy=o.get("frame.tlbc_index", 0),
    )
    ascii_size = o["unicode.asciiobject_size"]
    text = Text(
        code_line=walk.code_line,
        code_version=walk.code_version,
        code_file=o["code.filename"],
        code_name=walk.code_name,
        code_lines=o["code.linetable"],
        code_bytecode=walk.code_bytecode,
        text_length=o["unicode.length"],
        text_state=o["unicode.state"],
        text_kind=8 if o["free_threaded"] and minor >= 14 else 2,  # behind a byte, or 2 bits, of `interned`
        text_ascii=ascii_size,
        text_compact=ascii_size + 16,
        bytes_length=o["bytes.ob_size"],
        bytes_data=o["bytes.ob_sval"],
        line_format=LineFormat.LOCATIONS,
    )
    return PythonLayout(walk, text)


def _field(text: str) -> tuple[int, str]:
    """Returns the first minor version with a field, and the field's name."""
    since, _, name = text.rpartition("}")
    return int(since[1:] or 13), name


def _check(checked: PythonLayout, name: str) -> None:
    """Checks what the eBPF program relies on. Raises LayoutError."""
    walk, text = checked.walk, checked.text
    frame_bytes = _FRAME_BYTES if walk.frame_owner else _FRAME_OBJECT_BYTES
    in_frame = [walk.frame_code, walk.frame_previous, walk.frame_instruction, walk.frame_owner, walk.frame_copy]
    in_code = [walk.object_type, walk.code_line, walk.code_name, walk.code_traceable, walk.code_version]
    in_code += [walk.code_copies, text.code_file, text.code_lines]
    in_text = [
        text.text_length,
        text.text_state,
        text.text_ascii,
        text.text_compact,
        text.bytes_length,
        text.bytes_data,
    ]
    others = [value for value in (*astuple(walk)[1:], *astuple(text)) if not 0 <= value < _MAX_OFFSET]
    if others or abs(walk.code_type) > _MAX_DISTANCE or not all(0 <= at <= frame_bytes - 8 for at in in_frame[:3]):
        raise LayoutError(f"CPython {name}: its offsets are out of range")
    if not all(0 <= at < frame_bytes for at in in_frame) or walk.code_bytecode > _MAX_CODE_BYTES:
        raise LayoutError(f"CPython {name}: frames or code objects are larger than supported")
    if not all(0 <= at <= walk.code_bytecode - 8 for at in in_code) or not all(at < 256 for at in in_text):
        raise LayoutError(f"CPython {name}: its offsets of objects are out of range")


def _python_3_6_to_3_10(minor: int, code_type: int) -> PythonLayout:
    """The layouts before 3.11, in which frames are objects and code objects have no qualified names. In 3.6,
    `interpreters` counts from the variable itself."""
    moved = 8 if minor >= 8 else 0  # co_posonlyargcount
    walk = Walk(
        code_type=code_type, interpreters={6: 0, 7: 24}.get(minor, 32), threads=8, interpreter_next=0, thread_next=8,
        thread_id=152 if minor == 6 else 176, thread_frame=24, cframes=0, cframe_frame=0, cframe_previous=0,
        frame_code=32, frame_previous=24, frame_instruction={6: 120, 10: 96}.get(minor, 104), frame_owner=0,
        frame_is_entry=0, object_type=8, code_line=36 + moved // 2, code_name=104 + moved, code_traceable=0,
        code_bytecode=128, code_version=0,
    )  # fmt: skip
    line_format = LineFormat.RANGES if minor == 10 else LineFormat.LNOTAB
    return PythonLayout(walk, _text(walk, 48, 72, 96 + moved, 112 + moved, line_format))


def _python_3_11(code_type: int) -> PythonLayout:
    walk = Walk(
        code_type=code_type, interpreters=40, threads=16, interpreter_next=0, thread_next=8, thread_id=152,
        thread_frame=56, cframes=1, cframe_frame=8, cframe_previous=16, frame_code=32, frame_previous=48,
        frame_instruction=56, frame_owner=69, frame_is_entry=68, object_type=8, code_line=72,
        code_name=128, code_traceable=168, code_bytecode=184, code_version=0,
    )  # fmt: skip
    return PythonLayout(walk, _text(walk, text_ascii=48, text_compact=72))


def _python_3_12(code_type: int) -> PythonLayout:
    walk = Walk(
        code_type=code_type, interpreters=40, threads=72, interpreter_next=0, thread_next=8, thread_id=136,
        thread_frame=56, cframes=1, cframe_frame=0, cframe_previous=8, frame_code=0, frame_previous=8,
        frame_instruction=56, frame_owner=70, frame_is_entry=0, object_type=8, code_line=68,
        code_name=128, code_traceable=176, code_bytecode=192, code_version=68 + _VERSION_BEHIND_LINE,
    )  # fmt: skip
    return PythonLayout(walk, _text(walk, text_ascii=40, text_compact=56))


def _text(
    walk: Walk, text_ascii: int, text_compact: int,
    code_file: int = 112, code_lines: int = 136, line_format: LineFormat = LineFormat.LOCATIONS,
) -> Text:  # fmt: skip
    return Text(
        code_line=walk.code_line, code_version=walk.code_version, code_file=code_file, code_name=walk.code_name,
        code_lines=code_lines, code_bytecode=walk.code_bytecode, text_length=16, text_state=32, text_kind=2,
        text_ascii=text_ascii, text_compact=text_compact, bytes_length=16, bytes_data=32, line_format=line_format,
    )  # fmt: skip


_TABLE: dict[int, Callable[[int], PythonLayout]] = {
    minor: partial(_python_3_6_to_3_10, minor) for minor in range(6, 11)
}
_TABLE |= {11: _python_3_11, 12: _python_3_12}
