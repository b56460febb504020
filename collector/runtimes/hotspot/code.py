"""What is known of the code of all JVMs: compiled methods, interpreted methods, and pieces of code with a name.

What a frame may refer to is read as soon as the frame is seen: the JVM may free it, or end. The tables of compiled
methods take the most room, so only those that were used last are kept, and read again if they are needed.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from collector.processes.jit_name import JitName
from collector.runtimes.cache import Key, ObjectCache
from collector.runtimes.frames import Kind, ManagedFrame
from collector.runtimes.hotspot.blobs import NOWHERE, Blob, Inlined, read_blobs, unloaded
from collector.runtimes.hotspot.layout import HotspotLayout
from collector.runtimes.hotspot.methods import Method, find_parts, read_methods
from collector.runtimes.hotspot.vm_structs import Memory

MAX_TABLE_BYTES = 8 << 20
FRESH_S = 60.0
"""A method is read again after so long: its memory may be used for another one that looks the same but for its name."""

_MAX_POSITIONS = 1024  # of a compiled method, whose names are kept


@dataclass(frozen=True)
class Jvm:
    """How the memory of a JVM is read."""

    memory: Memory
    layout: HotspotLayout
    call_stub_return: int  # where the method returns to by which C++ code has called Java


@dataclass
class _Known:
    blob: Blob
    call_stub: int  # where in it C++ code calls Java, if it does
    checks: dict[int, int]  # of its methods
    names: dict[int, tuple[JitName, ...]] = field(default_factory=dict)  # by position


class _Timed:
    __slots__ = ("method", "read_s")

    def __init__(self, method: Method) -> None:
        self.method, self.read_s = method, time.monotonic()


class HotspotCode:
    """For several threads."""

    def __init__(self) -> None:
        self._methods: ObjectCache[_Timed] = ObjectCache()
        self._blobs: ObjectCache[_Known] = ObjectCache()
        self._lock = threading.Lock()
        self._tables: OrderedDict[Key, _Known] = OrderedDict()
        self._tables_bytes = 0

    def read(self, pid: int, jvm: Jvm, blobs: Iterable[int], methods: Iterable[int]) -> None:
        """Reads the blobs and the interpreted methods at these addresses, and what they refer to."""
        found = read_blobs(jvm.memory, jvm.layout, sorted(set(blobs)))
        methods_of = {
            at: {blob.method} | (blob.scopes.methods() if blob.scopes else set())
            for at, blob in found.items()
            if blob.method
        }
        check_of = self._read_methods(pid, jvm, set().union(methods, *methods_of.values()))
        for at in unloaded(jvm.memory, jvm.layout, found):
            found[at] = Blob("", found[at].check, 0, False, None)
        known = {
            Key(pid, at, blob.check): _Known(
                blob, jvm.call_stub_return - at - 1, {m: check_of[m] for m in methods_of.get(at, ()) if m in check_of}
            )
            for at, blob in found.items()
        }
        self._blobs.add(known)
        self._keep_tables(known)

    def functions(self, wanted: list[ManagedFrame], jvm_of: Callable[[int], Jvm | None]) -> list[tuple[JitName, ...]]:
        """See Runtime. Reads what was not read before."""
        keys = [Key(frame.pid, frame.object, frame.check) for frame in wanted]
        result = [self._name(key, frame) for key, frame in zip(keys, wanted, strict=True)]
        missing: dict[int, list[int]] = {}
        for i, names in enumerate(result):
            if names is None:
                missing.setdefault(wanted[i].pid, []).append(i)
        for pid, rows in missing.items():
            jvm = jvm_of(pid)
            if jvm is not None:
                of_kind = {kind: {wanted[i].object for i in rows if wanted[i].kind == kind} for kind in Kind}
                self.read(pid, jvm, of_kind[Kind.HOTSPOT_CODE], of_kind[Kind.HOTSPOT_METHOD])
        for i in (i for rows in missing.values() for i in rows):
            result[i] = self._name(keys[i], wanted[i], last=True)
        return [names or () for names in result]

    def forget(self, pids: Iterable[int]) -> None:
        """See Runtime."""
        gone = set(pids)
        self._methods.forget(gone)
        self._blobs.forget(gone)
        with self._lock:
            for key in [key for key in self._tables if key.pid in gone] if gone else []:
                self._drop(key)

    def _read_methods(self, pid: int, jvm: Jvm, addresses: set[int]) -> dict[int, int]:
        """Reads those that are not known, or not fresh. Returns the check of each that has a name."""
        parts = find_parts(jvm.memory, jvm.layout, addresses)
        key_of = {at: Key(pid, at, each.check) for at, each in parts.items()}
        oldest = time.monotonic() - FRESH_S
        fresh = {key for key, known in self._methods.find(key_of.values()).items() if known.read_s >= oldest}
        found = read_methods(
            jvm.memory, jvm.layout, {at: each for at, each in parts.items() if key_of[at] not in fresh}
        )
        again = find_parts(jvm.memory, jvm.layout, found)  # another one may have taken its place meanwhile
        found = {at: method for at, method in found.items() if at in again and again[at].check == parts[at].check}
        self._methods.add({key_of[at]: _Timed(method) for at, method in found.items()})
        return {at: key.check for at, key in key_of.items() if key in fresh or at in found}

    def _name(self, key: Key, frame: ManagedFrame, last: bool = False) -> tuple[JitName, ...] | None:
        """None: it has to be read (again). `last`: it was, as far as possible."""
        if frame.kind == Kind.HOTSPOT_METHOD:
            known = self._methods.find([key]).get(key)
            if known is None or (not last and known.read_s < time.monotonic() - FRESH_S):
                return None
            return (_of(known.method, frame.position),)
        code = self._blobs.find([key]).get(key)
        if code is None:
            return None
        if not code.blob.method:
            stub = "call_stub" if frame.position == code.call_stub else code.blob.name
            return (JitName(stub, ""),) if stub else ()
        names = code.names.get(frame.position)
        if names is None:
            names = self._compiled(key, code, frame.position, last)
            if names and len(code.names) < _MAX_POSITIONS:
                code.names[frame.position] = names
        return names

    def _compiled(self, key: Key, code: _Known, position: int, last: bool) -> tuple[JitName, ...] | None:
        scopes = code.blob.scopes
        if scopes is None and code.blob.has_scopes and not last:
            return None
        scopes_there = scopes.at(position) if scopes else []
        chain = scopes_there or [Inlined(code.blob.method, NOWHERE)]
        keys = [Key(key.pid, method, code.checks.get(method, -1)) for method, _ in chain]
        known = self._methods.find(keys)
        if len(known) < len(set(keys)) and not last:
            return None
        return tuple(_of(known[key].method, at) for key, (_, at) in zip(keys, chain, strict=True) if key in known)

    def _keep_tables(self, read: Mapping[Key, _Known]) -> None:
        """Drops the tables of other compiled methods that were read long ago."""
        with self._lock:
            for key, code in read.items():
                self._drop(key)
                if code.blob.scopes:
                    self._tables[key] = code
                    self._tables_bytes += code.blob.scopes.size
            while self._tables_bytes > MAX_TABLE_BYTES:
                self._drop(next(iter(self._tables)))

    def _drop(self, key: Key) -> None:
        code = self._tables.pop(key, None)
        if code is not None and code.blob.scopes:
            self._tables_bytes -= code.blob.scopes.size
            code.blob.scopes = None


def _of(method: Method, bytecode: int) -> JitName:
    return JitName(method.function, method.file, method.line(bytecode))
