"""Reasons of waits by kernel stacks, innermost first, as kernels from 5.10 to 6.18 have them."""

import pytest

from api.views.wait_reasons import reason_of

SYSCALL = "do_syscall_64 entry_SYSCALL_64_after_hwframe"


@pytest.mark.parametrize(
    ("reason", "stack"),
    [
        ("lock", f"schedule futex_wait_queue_me futex_wait do_futex __x64_sys_futex {SYSCALL}"),  # 5.10
        ("lock", f"schedule futex_wait_queue __futex_wait futex_wait do_futex __x64_sys_futex {SYSCALL}"),  # 6.1
        ("lock", f"schedule futex_do_wait __futex_wait futex_wait do_futex __x64_sys_futex {SYSCALL}"),  # 6.18
        ("lock", "schedule __arm64_sys_futex invoke_syscall el0_svc"),
        ("lock", f"schedule schedule_preempt_disabled __mutex_lock.constprop.0 pipe_write vfs_write {SYSCALL}"),
        ("lock", "schedule rwsem_down_read_slowpath down_read do_user_addr_fault exc_page_fault asm_exc_page_fault"),
        ("sleep", f"schedule do_nanosleep hrtimer_nanosleep common_nsleep __x64_sys_clock_nanosleep {SYSCALL}"),
        ("sleep", "schedule __se_sys_nanosleep"),
        ("pipe", f"schedule pipe_read new_sync_read vfs_read ksys_read {SYSCALL}"),
        ("pipe", f"schedule anon_pipe_read vfs_read ksys_read {SYSCALL}"),  # 6.18
        ("network", f"schedule schedule_timeout wait_woken sk_wait_data tcp_recvmsg_locked inet_recvmsg {SYSCALL}"),
        ("network", f"schedule schedule_timeout unix_stream_data_wait unix_stream_read_generic {SYSCALL}"),
        ("network", f"schedule schedule_timeout __skb_wait_for_more_packets __skb_recv_udp udp_recvmsg {SYSCALL}"),
        ("network", f"schedule schedule_hrtimeout_range_clock ep_poll do_epoll_wait __x64_sys_epoll_wait {SYSCALL}"),
        ("network", f"schedule schedule_hrtimeout_range do_sys_poll __x64_sys_poll {SYSCALL}"),
        ("network", "schedule rpc_wait_bit_killable __wait_on_bit nfs_file_fsync __x64_sys_fsync"),
        ("disk", f"schedule io_schedule wait_on_page_bit_common generic_file_buffered_read vfs_read {SYSCALL}"),
        ("disk", f"schedule io_schedule folio_wait_bit_common filemap_fault __do_fault asm_exc_page_fault {SYSCALL}"),
        ("disk", f"schedule jbd2_log_wait_commit ext4_sync_file do_fsync __x64_sys_fsync {SYSCALL}"),
        ("disk", f"schedule schedule_timeout io_schedule_timeout __wait_for_common submit_bio_wait {SYSCALL}"),
        ("disk", "schedule __x64_sys_fdatasync"),
        ("run_queue", "[run queue] schedule futex_do_wait __x64_sys_futex"),
        ("run_queue", "[run queue]"),
        ("other", f"schedule do_wait kernel_wait4 __x64_sys_wait4 {SYSCALL}"),
        ("other", f"schedule schedule_timeout wait_woken n_tty_read tty_read vfs_read ksys_read {SYSCALL}"),
        ("other", "schedule io_cqring_wait __x64_sys_io_uring_enter"),
        ("other", "[kernel]+0x1234"),
        ("other", ""),
    ],
)  # fmt: skip
def test_the_innermost_known_function_of_the_kernel_says_the_reason(reason: str, stack: str) -> None:
    assert reason_of(stack.replace(" ", ",").replace("[run,queue]", "[run queue]").split(",")) == reason
