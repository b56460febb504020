"""Where the fields of HotSpot's structures are that walking and naming needs, in bytes.

JDK 12, 15, 16, 21, 23 and 25 moved some of them; a JVM of another version is accepted if it says where they are. The
comments in bpf/hotspot.h and the modules here say what each means.
"""

from dataclasses import astuple, dataclass

from collector.runtimes.hotspot.vm_structs import StructuresError, VmStructs

OLDEST, NO_ZERO_BYTES = 11, 20
_MAX_OFFSET = 1024
_MAX_BLOB_OFFSET = 500  # bpf/hotspot.h reads the first 512 bytes of a blob


@dataclass(frozen=True)
class WalkLayout:
    """What the eBPF program needs: struct hotspot_layout in bpf/hotspot.h."""

    block_header: int  # bytes of HeapBlock
    block_used: int
    blob_bytes: int  # so much of a CodeBlob or nmethod is read
    blob_name: int
    blob_frame_size: int  # int, words
    blob_frame_complete: int  # u16: bytes from the start of the code
    blob_code: int
    code_is_offset: int  # 1: `blob_code` and `nmethod_deopt` are ints, bytes from the blob; 0: they are pointers
    nmethod_compile_id: int
    nmethod_orig_pc: int
    nmethod_deopt: int
    nmethod_deopt_mh: int
    method_const: int
    const_size: int  # bytes of ConstMethod: bytecodes follow
    const_code_size: int
    const_constants: int
    const_name: int  # u16
    pool_bytes: int
    pool_holder: int
    class_name: int
    symbol_hash: int  # u32: the upper half is random


@dataclass(frozen=True)
class NameLayout:
    """What reading names and lines needs, beyond WalkLayout. 0: there is no such field."""

    nmethod_bytes: int
    blob_data: int  # data_offset, int
    nmethod_method: int
    scopes_pcs: int  # int: bytes from the blob, or from immutable_data
    scopes_data: int  # a pointer, or int: bytes from immutable_data
    metadata: int  # int or u16
    dependencies: int  # up to 22: int, where PcDescs end
    immutable_data: int  # since 23
    immutable_size: int
    mutable_data: int  # since 25
    mutable_size: int
    relocation_size: int
    const_bytes: int  # of the whole ConstMethod, in words
    const_flags: int
    pool_source_file: int  # since 15
    class_source_file: int  # before
    symbol_length: int
    symbol_body: int
    excluded_zero: int  # 1 since 20: UNSIGNED5 has no zero bytes


@dataclass(frozen=True)
class HeapLayout:
    """What finding the code heaps needs."""

    heaps: int  # address of CodeCache::_heaps in the process
    array_length: int
    array_data: int
    heap_memory: int
    heap_segments: int
    heap_shift: int
    low: int
    high: int


@dataclass(frozen=True)
class HotspotLayout:
    walk: WalkLayout
    names: NameLayout
    heaps: HeapLayout
    call_stub_return: int  # address of StubRoutines::_call_stub_return_address in the process


def layout(version: int, structs: VmStructs) -> HotspotLayout:
    """Raises StructuresError."""
    if version < OLDEST:
        raise StructuresError(f"JDK {version}: expected {OLDEST} or newer")
    fields, sizes, compiled = structs.fields, structs.sizes, "CompiledMethod"
    if "CompiledMethod._method" not in fields:  # since 23
        compiled = "nmethod"

    def at(*names: str) -> int:
        """The offset of the first of these fields that there is."""
        found = next((fields[name] for name in names if name in fields), None)
        if found is None:
            raise StructuresError(f"JDK {version} does not say where {names[0]} is")
        if not 0 <= found < _MAX_OFFSET:
            raise StructuresError(f"JDK {version}: {names[0]} is out of range")
        return found

    def size(name: str) -> int:
        if not 0 < sizes.get(name, 0) < _MAX_OFFSET:
            raise StructuresError(f"JDK {version} does not say how large {name} is")
        return sizes[name]

    by_offset = "CodeBlob._code_offset" in fields
    new = "nmethod._immutable_data" in fields
    mutable = "CodeBlob._mutable_data" in fields
    walk = WalkLayout(
        block_header=size("HeapBlock"),
        block_used=at("HeapBlock::Header._used"),
        blob_bytes=size("nmethod"),
        blob_name=at("CodeBlob._name"),
        blob_frame_size=at("CodeBlob._frame_size"),
        blob_frame_complete=at("CodeBlob._frame_complete_offset"),
        blob_code=at("CodeBlob._code_offset", "CodeBlob._code_begin"),
        code_is_offset=int(by_offset),
        nmethod_compile_id=at("nmethod._compile_id"),
        nmethod_orig_pc=at("nmethod._orig_pc_offset"),
        nmethod_deopt=at(
            *("nmethod._deopt_handler_entry_offset", "nmethod._deopt_handler_offset") if by_offset else (),
            f"{compiled}._deopt_handler_begin",
        ),
        nmethod_deopt_mh=at(
            *(
                "nmethod._deopt_mh_handler_offset",
                "nmethod._deopt_handler_entry_offset",
                "nmethod._deopt_handler_offset",
            )
            if by_offset
            else (),
            f"{compiled}._deopt_mh_handler_begin",
        ),
        method_const=at("Method._constMethod"),
        const_size=size("ConstMethod"),
        const_code_size=at("ConstMethod._code_size"),
        const_constants=at("ConstMethod._constants"),
        const_name=at("ConstMethod._name_index"),
        pool_bytes=size("ConstantPool"),
        pool_holder=at("ConstantPool._pool_holder"),
        class_name=at("Klass._name"),
        symbol_hash=at("Symbol._hash_and_refcount", "Symbol._refcount"),
    )
    names = NameLayout(
        nmethod_bytes=size("nmethod"),
        blob_data=at("CodeBlob._data_offset"),
        nmethod_method=at(f"{compiled}._method"),
        scopes_pcs=at("nmethod._scopes_pcs_offset"),
        scopes_data=at("nmethod._scopes_data_offset") if new else at(f"{compiled}._scopes_data_begin"),
        metadata=0 if mutable else at("nmethod._metadata_offset"),
        dependencies=0 if new else at("nmethod._dependencies_offset"),
        immutable_data=at("nmethod._immutable_data") if new else 0,
        immutable_size=at("nmethod._immutable_data_size") if new else 0,
        mutable_data=at("CodeBlob._mutable_data") if mutable else 0,
        mutable_size=at("CodeBlob._mutable_data_size") if mutable else 0,
        relocation_size=at("CodeBlob._relocation_size") if mutable else 0,
        const_bytes=at("ConstMethod._constMethod_size"),
        const_flags=at("ConstMethod._flags._flags", "ConstMethod._flags"),
        pool_source_file=fields.get("ConstantPool._source_file_name_index", 0),
        class_source_file=0
        if "ConstantPool._source_file_name_index" in fields
        else at("InstanceKlass._source_file_name_index"),
        symbol_length=at("Symbol._length"),
        symbol_body=at("Symbol._body"),
        excluded_zero=int(version >= NO_ZERO_BYTES),
    )
    heaps = HeapLayout(
        heaps=_static(structs, "CodeCache._heaps"),
        array_length=at("GrowableArrayBase._len", "GenericGrowableArray._len"),
        array_data=at("GrowableArray<int>._data"),
        heap_memory=at("CodeHeap._memory"),
        heap_segments=at("CodeHeap._segmap"),
        heap_shift=at("CodeHeap._log2_segment_size"),
        low=at("VirtualSpace._low_boundary"),
        high=at("VirtualSpace._high_boundary"),
    )
    if not all(0 <= value <= _MAX_BLOB_OFFSET for value in astuple(walk)):
        raise StructuresError(f"JDK {version}: its blobs are larger than supported")
    return HotspotLayout(walk, names, heaps, _static(structs, "StubRoutines._call_stub_return_address"))


def _static(structs: VmStructs, name: str) -> int:
    if name not in structs.statics:
        raise StructuresError(f"the JVM does not say where {name} is")
    return structs.statics[name]
