"""What a thread waited for, by the kernel's functions on its stack: the innermost one that this table knows decides.

Names differ between kernels (futex_wait_queue_me in 5.10, futex_do_wait in 6.18), so most entries are how names begin.
"""

import re
from collections.abc import Iterable

import numpy as np

from api.tree.functions import Function
from api.tree.stack_cache import FunctionStacks
from icestream.topics import RUN_QUEUE

OTHER = "other"
_FUTEXES = "futex __futex"  # locks, conditions, queues and joins of threads are made of them, and Python's GIL
_KERNEL_LOCKS = """rt_mutex_ __rt_mutex rtlock_ mutex_ __mutex ww_mutex rwsem_ __down down_ percpu_down_ percpu_rwsem_
    __percpu_ __lock_sock lock_sock"""
_FILE_LOCKS = "flock_lock posix_lock fcntl_setlk locks_lock do_flock do_semtimedop __do_semtimedop"
_SOCKETS = """sk_ __sk_ skb_ __skb_ sock_ __sock tcp_ udp inet unix_ netlink_ packet_ vsock_ virtio_transport tls_
    mptcp_ sctp_ recv send accept connect"""
_POLLS = """do_poll do_sys_poll poll_schedule do_select core_sys_select ep_poll do_epoll epoll_ do_pselect poll ppoll
    select pselect"""  # they do not say for what: in a request, it is nearly always sockets
_NETWORK_FILES = "nfs rpc_ __rpc cifs_ smb ceph_"
_FILE_SYSTEMS = """jbd2_ ext4_ xfs_ xlog_ btrfs_ f2fs_ zil_ zio_ txg_ fuse_ request_wait_answer p9_ v9fs_ do_fsync
    vfs_fsync fsync fdatasync sync_file_range do_sync ksys_sync"""
_BLOCKS = """io_schedule folio_wait __folio_lock wait_on_page __lock_page __wait_on_buffer __lock_buffer filemap_ bio_
    submit_bio blk_ blkdev_ rq_qos_ wbt_ dio_ do_direct_IO __blockdev_direct_IO iomap_ __iomap balance_dirty_pages
    writeback_ wb_wait do_swap_page swap_ dm_ nvme_"""
_BEGINNINGS = {
    "lock": (_FUTEXES, _KERNEL_LOCKS, _FILE_LOCKS),
    "sleep": ("do_nanosleep hrtimer_nanosleep common_nsleep nanosleep clock_nanosleep alarm_timer_nsleep msleep",),
    "pipe": ("pipe_ anon_pipe_ fifo_ wait_for_partner ipipe_ opipe_ splice_ vmsplice",),
    "network": (_SOCKETS, _POLLS, _NETWORK_FILES),
    "disk": (_BLOCKS, _FILE_SYSTEMS),
    OTHER: ("io_cqring_wait do_wait kernel_wait do_sigtimedwait",),
}
_PATTERN = re.compile(
    r"(?:__[a-z0-9]+_(?:compat_)?sys_)?(?:"  # the kernel's entries of system calls: __x64_sys_futex
    + "|".join(f"(?P<{reason}>{'|'.join(' '.join(names).split())})" for reason, names in _BEGINNINGS.items())
    + r")"
)


def reason_of(names: Iterable[str]) -> str:
    """The reason by the names of the kernel's functions, innermost first."""
    for name in names:
        if name == RUN_QUEUE:
            return "run_queue"
        if found := _PATTERN.match(name):
            return found.lastgroup or OTHER
    return OTHER


def reasons(stacks: FunctionStacks) -> list[str]:
    """The reason of each stack."""
    parent, function = stacks.tree.parent, stacks.tree.function
    of_leaf = {leaf: reason_of(_kernel_names(stacks, leaf, parent, function)) for leaf in set(stacks.leaves.tolist())}
    return [of_leaf[leaf] for leaf in stacks.leaves.tolist()]


def _kernel_names(stacks: FunctionStacks, row: int, parent: np.ndarray, function: np.ndarray) -> Iterable[str]:
    while row:
        one: Function = stacks.functions[int(function[row])]
        if one.kind != "kernel":
            return
        yield one.name
        row = int(parent[row])
