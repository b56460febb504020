"""Opens files of others: regular ones only, of file systems that hold data.

A path that a process, a file or a message names is opened from the root of a process. A link on its way may lead
anywhere, so links are resolved within that root, and links of procfs that lead out of it (proc(5), "magic links") are
not followed. What is there is looked at before it is opened, because opening and reading have effects: of a device,
whatever its driver does; of a FIFO, that a writer goes on; of /proc/kmsg, that the kernel's messages are gone.
"""

import ctypes
import errno
import os
import stat
from collections.abc import Callable

Accept = Callable[[os.stat_result], bool]

_OPENAT2 = 437  # of openat2(2), on all architectures
_NO_MAGICLINKS, _IN_ROOT = 0x02, 0x10  # RESOLVE_*, include/uapi/linux/openat2.h
_LOOK = os.O_PATH | os.O_CLOEXEC
_STATX = 332 if os.uname().machine == "x86_64" else 291  # of statx(2)
_AT_EMPTY_PATH, _AT_STATX_DONT_SYNC, _STATX_BASIC_STATS = 0x1000, 0x4000, 0x7FF
_IDENTIFYING = (32, 48), (96, 128), (136, 144)  # inode and size, times of the last changes, device
_WALKED_INSTEAD = (
    errno.ENOSYS,  # before Linux 5.6
    errno.EPERM,  # a seccomp filter that does not know the call
    errno.EAGAIN,  # something was renamed or mounted meanwhile, so that the kernel could not be sure of a ".."
)
_MAX_LINKS = 40  # as the kernel
_MAX_DEPTH = 256  # of folders, each of which takes a descriptor
_PROC = 0x9FA0
_OF_THE_KERNEL = {
    _PROC,
    0x62656572,  # sysfs
    0x64626720,  # debugfs
    0x74726163,  # tracefs
    0x73636673,  # securityfs
    0xF97CFF8C,  # selinuxfs
    0x43415D53,  # smackfs
    0x62656570,  # configfs
    0x0027E0EB,  # cgroup
    0x63677270,  # cgroup2
    0x07655821,  # resctrl
    0xCAFE4A11,  # bpf
    0x6165676C,  # pstore
    0xDE5E81E4,  # efivarfs
    0x42494E4D,  # binfmt_misc
    0x65735543,  # fusectl
    0x6E667364,  # nfsd
    0x67596969,  # rpc_pipefs
    0x19800202,  # mqueue
    0x00001CD1,  # devpts
    0x6C6F6F70,  # binderfs
    0x0A647361,  # functionfs
    0xAEE71EE7,  # gadgetfs
    0xABBA1974,  # xenfs
    0x6E736673,  # nsfs
    0x50494446,  # pidfs
    0x50495045,  # pipefs
    0x534F434B,  # sockfs
    0x09041934,  # anonymous inodes
    0x444D4142,  # DMA buffers
}
"""f_type of statfs(2), include/uapi/linux/magic.h: file systems whose files are calls of the kernel."""
_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


def open_regular(path: str) -> int:
    """Opens a file at a path that nobody else named; the caller closes the descriptor. Raises OSError, and
    FileNotFoundError if it is no regular file, or one of the kernel's own."""
    return _open(_checked(os.open(path, _LOOK), path, None))


def open_in_root(root: str, path: str, accept: Accept | None = None, follow: bool = True) -> int:
    """Opens a stranger's path below a root ("/", or /proc/PID/root); the caller closes the descriptor.

    `accept`: whether a file may be opened. `follow`: a link at the end of the path. Raises OSError, and
    FileNotFoundError if it is no regular file, or one of the kernel's own.
    """
    return _open(hold_in_root(root, path, accept, follow))


def hold_in_root(root: str, path: str, accept: Accept | None = None, follow: bool = True) -> int:
    """As `open_in_root`, but the descriptor only keeps the file (`hold`)."""
    return _checked(_look(root, path, follow), f"{root.rstrip('/')}/{path.lstrip('/')}", accept)


def hold(descriptor: int) -> int:
    """Returns a descriptor that keeps an open file, for the caller to close. Closing it asks no file system; closing a
    readable one does (FUSE), and waits for the answer."""
    return os.open(f"/proc/self/fd/{descriptor}", _LOOK)


def reopen(held: int) -> int:
    """Opens a file that is held, for reading; the caller closes the descriptor. Raises OSError."""
    return os.open(f"/proc/self/fd/{held}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def program_of(pid: int) -> bytes:
    """Returns what tells the file of a process's program from others, and from what it was before a change; b"" if the
    process has ended. Asks no file system."""
    status = ctypes.create_string_buffer(256)  # struct statx
    try:
        held = os.open(f"/proc/{pid}/exe", _LOOK)
    except OSError:
        return b""
    try:
        failed = _libc.syscall(_STATX, held, b"", _AT_EMPTY_PATH | _AT_STATX_DONT_SYNC, _STATX_BASIC_STATS, status)
    finally:
        os.close(held)
    return b"" if failed else b"".join(status.raw[at:end] for at, end in _IDENTIFYING)


def status_in_root(root: str, path: str) -> os.stat_result:
    """Looks at a stranger's path below a root; does not follow a link at its end. Raises OSError."""
    looked = _look(root, path, follow=False)
    try:
        return os.fstat(looked)
    finally:
        os.close(looked)


def _checked(looked: int, path: str, accept: Accept | None) -> int:
    """Closes the descriptor unless it returns it."""
    try:
        status = os.fstat(looked)
        if not stat.S_ISREG(status.st_mode) or _file_system(looked) in _OF_THE_KERNEL:
            raise FileNotFoundError(f"{path} is no regular file")
        if accept is not None and not accept(status):
            raise FileNotFoundError(f"{path} is another file than expected")
        return looked
    except BaseException:
        os.close(looked)
        raise


def _open(held: int) -> int:
    try:
        return reopen(held)
    finally:
        os.close(held)


def _file_system(descriptor: int) -> int:
    """f_type of fstatfs(2); 0 where the file system does not say it, as the kernel's own always do."""
    status = (ctypes.c_uint64 * 32)()  # more than struct statfs takes; it begins with f_type, a word
    return 0 if _libc.fstatfs(descriptor, status) else status[0] & 0xFFFFFFFF


def _look(root: str, path: str, follow: bool) -> int:
    if "\0" in path:
        raise FileNotFoundError("a path with a NUL")
    top = os.open(root, _LOOK | os.O_DIRECTORY)
    try:
        flags = _LOOK if follow else _LOOK | os.O_NOFOLLOW
        how = _OpenHow(flags, 0, _IN_ROOT | _NO_MAGICLINKS)
        looked = _openat2(top, os.fsencode(path), how)
        if looked >= 0:
            return looked
        error = ctypes.get_errno()
        if error in _WALKED_INSTEAD:
            return _walk(top, path, follow)
        raise OSError(error, os.strerror(error), path)
    finally:
        os.close(top)


def _openat2(folder: int, path: bytes, how: _OpenHow) -> int:
    """-1 with an errno where it fails."""
    return int(_libc.syscall(_OPENAT2, folder, path, ctypes.byref(how), ctypes.sizeof(how)))


def _walk(top: int, path: str, follow: bool) -> int:
    """What openat2 does, one name after the other. Goes back up by the way that it came, never by a folder's own "..",
    which leads out of the root if somebody moves the folder."""
    way: list[int] = []
    names, links = path.split("/")[::-1], 0
    try:
        while names:
            name = names.pop()
            if name == "..":
                if way:
                    os.close(way.pop())
            elif name not in ("", "."):
                if len(way) == _MAX_DEPTH:
                    raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)
                way.append(os.open(name, _LOOK | os.O_NOFOLLOW, dir_fd=way[-1] if way else top))
                if stat.S_ISLNK(os.fstat(way[-1]).st_mode) and (follow or any(names)):
                    links += 1
                    if links > _MAX_LINKS or _file_system(way[-1]) == _PROC:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                    target = os.readlink("", dir_fd=way[-1])
                    for folder in way if target.startswith("/") else way[-1:]:
                        os.close(folder)
                    way[:] = [] if target.startswith("/") else way[:-1]
                    names += target.split("/")[::-1]
        return way.pop() if way else os.dup(top)
    finally:
        for folder in way:
            os.close(folder)
