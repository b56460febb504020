"""Control groups as the kernel shows them of processes of many container runtimes."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.labels.cgroup import Cgroup, parse_cgroup, read_cgroup

ID = "0123456789abcdef" * 4
OUTER = "fedcba9876543210" * 4
TASK = "ab12" * 8
UID = "1cf9e9b0-6b7e-4c5d-9d7b-2f6a1a8d3c11"
UID_ = UID.replace("-", "_")
POD_SLICE = f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID_}.slice"
USER = "user.slice/user-1000.slice/user@1000.service"

LINES = [
    # cgroup, container ID, runtime, pod UID, unit, slice
    (f"0::/system.slice/docker-{ID}.scope", ID, "docker", "", "", "system.slice"),
    (f"9:pids:/docker/{ID}\n1:name=systemd:/docker/{ID}\n0::/system.slice/docker.service", ID, "docker", "", "", ""),
    (f"1:name=systemd:/system.slice:docker:{ID}", ID, "docker", "", "", ""),
    (f"0::/system.slice/docker-{ID}.scope/init.scope", ID, "docker", "", "init.scope", "system.slice"),
    (f"0::/system.slice/docker-{ID}.scope/system.slice/ntp.service", ID, "docker", "", "ntp.service", "system.slice"),
    (f"0::/actions_job/{ID}", ID, "docker", "", "", ""),
    (f"0::/{POD_SLICE}/cri-containerd-{ID}.scope", ID, "containerd", UID, "", POD_SLICE.split("/")[-1]),
    (f"11:memory:/kubepods/besteffort/pod{UID}/{ID}", ID, "", UID, "", ""),
    (f"0::/kubepods/pod{UID}/{ID}", ID, "", UID, "", ""),
    (f"0::/kubepods/burstable/pod{TASK}/{ID}", ID, "", TASK, "", ""),  # a static pod
    (
        f"11:cpu:/system.slice/containerd.service/kubepods-burstable-pod{UID_}.slice:cri-containerd:{ID}",
        ID, "containerd", UID, "", "system.slice",
    ),
    (f"0::/{POD_SLICE}/crio-{ID}.scope/container", ID, "cri-o", UID, "", POD_SLICE.split("/")[-1]),
    (f"0::/{POD_SLICE}/crio-conmon-{ID}.scope", "", "", UID, f"crio-conmon-{ID}.scope", POD_SLICE.split("/")[-1]),
    (f"0::/machine.slice/libpod-{ID}.scope/container", ID, "podman", "", "", "machine.slice"),
    (f"4:memory:/libpod_parent/libpod-{ID}", ID, "podman", "", "", ""),
    (f"0::/{USER}/user.slice/libpod-conmon-{ID}.scope", "", "", "", f"libpod-conmon-{ID}.scope", "user.slice"),
    (f"0::/system.slice/nerdctl-{ID}.scope", ID, "containerd", "", "", "system.slice"),
    # a cluster of kind: the node is a container of Docker's
    (
        f"0::/docker/{OUTER}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UID_}.slice/cri-containerd-{ID}.scope",
        ID, "containerd", UID, "", f"kubelet-kubepods-pod{UID_}.slice",
    ),
    (f"0::/system.slice/docker-{OUTER}.scope/kubelet/kubepods/pod{UID}/{ID}", ID, "", UID, "", "system.slice"),
    (f"9:perf_event:/ecs/prod/{TASK}/{ID}", ID, "", "", "", ""),
    (f"0::/ecs/{TASK}/{TASK}-1234567890", f"{TASK}-1234567890", "", "", "", ""),
    (f"0::/ecstasks.slice/ecstasks-{TASK}.slice/docker-{ID}.scope", ID, "docker", "", "", f"ecstasks-{TASK}.slice"),
    ("0::/lxc.payload.web/system.slice/cron.service", "web", "lxc", "", "cron.service", "system.slice"),
    ("0::/lxc.payload/web", "web", "lxc", "", "", ""),
    ("1:name=systemd:/lxc/web/init.scope\n0::/", "web", "lxc", "", "init.scope", ""),
    ("0::/lxc.monitor.web", "", "", "", "", ""),
    ("7:cpu:/garden/6f265890-5165-7fab-6b52-18d1", "6f265890-5165-7fab-6b52-18d1", "garden", "", "", ""),
    (
        "0::/machine.slice/systemd-nspawn@deb\\x2done.service/payload/system.slice/sshd.service",
        "deb-one", "systemd-nspawn", "", "sshd.service", "system.slice",
    ),
    ("0::/machine.slice/machine-deb.scope", "deb", "systemd-nspawn", "", "", "machine.slice"),
    (
        "0::/machine.slice/machine-qemu\\x2d1\\x2dvm.scope/libvirt/emulator",
        "", "", "", "machine-qemu\\x2d1\\x2dvm.scope", "machine.slice",
    ),
    ("0::/system.slice/nginx.service", "", "", "", "nginx.service", "system.slice"),
    ("0::/system.slice/system-getty.slice/getty@tty1.service", "", "", "", "getty@tty1.service", "system-getty.slice"),
    # a user may give the groups below user@.service any name
    (f"0::/{USER}/user.slice/libpod-{ID}.scope/container", "", "", "", "user@1000.service", "user.slice"),
    (f"0::/{USER}/kubepods/pod{UID}/{ID}", "", "", "", "user@1000.service", "user-1000.slice"),
    (f"0::/{USER}/docker/{ID}", "", "", "", "user@1000.service", "user-1000.slice"),
    (f"0::/{USER}/lxc.payload.web", "", "", "", "user@1000.service", "user-1000.slice"),
    (f"0::/docker/{OUTER}/{USER}/docker/{ID}", OUTER, "docker", "", "user@1000.service", "user-1000.slice"),
    (f"0::/{USER}/app.slice/app-firefox-77.scope", "", "", "", "app-firefox-77.scope", "app.slice"),
    ("0::/user.slice/user-0.slice/session-3.scope", "", "", "", "session-3.scope", "user-0.slice"),
    ("2:cpu:/\n1:name=systemd:/x.slice/a.service\n0::/x.slice/a.service", "", "", "", "a.service", "x.slice"),
    # seen from within a cgroup namespace
    (f"0::/../../{POD_SLICE}/cri-containerd-{ID}.scope", ID, "containerd", UID, "", POD_SLICE.split("/")[-1]),
    (f"0::/../cri-containerd-{ID}.scope", ID, "containerd", "", "", ""),
    ("0::/\n", "", "", "", "", ""),
    ("0::/..\n", "", "", "", "", ""),
    ("garbage\n:::\n\n", "", "", "", "", ""),
    ("", "", "", "", "", ""),
]  # fmt: skip


@pytest.mark.parametrize(("cgroup", "container", "runtime", "pod", "unit", "slice_unit"), LINES)
def test_the_control_group_tells_container_pod_and_unit(
    cgroup: str, container: str, runtime: str, pod: str, unit: str, slice_unit: str
) -> None:
    found = parse_cgroup(cgroup)
    assert (found.container_id, found.runtime, found.pod_uid, found.unit, found.slice) == (
        container, runtime, pod, unit, slice_unit,
    )  # fmt: skip


def test_the_path_is_of_the_hierarchy_that_told_and_of_the_root_it_is_empty() -> None:
    assert parse_cgroup(f"1:name=systemd:/docker/{ID}\n0::/system.slice/containerd.service").path == f"/docker/{ID}"
    assert parse_cgroup("3:cpu:/x\n1:name=systemd:/a/b.service\n0::/").path == "/a/b.service"
    assert parse_cgroup(f"0::/../../kubepods/pod{UID}/{ID} (deleted)").path == f"/kubepods/pod{UID}/{ID}"
    assert parse_cgroup("2:cpu:/\n0::/\n") == Cgroup()


def test_a_process_that_is_gone_is_in_no_group() -> None:
    assert read_cgroup(f"/proc/{2**22 + 1}") == Cgroup()
    assert isinstance(read_cgroup(f"/proc/{os.getpid()}"), Cgroup)


@given(st.text(alphabet="0123456789abcdef:/-._\\x pod.slice\n@", max_size=300) | st.text(max_size=300))
def test_any_text_is_taken(text: str) -> None:
    found = parse_cgroup(f"0::/{text}")
    assert "/" not in found.container_id
    assert "/" not in found.unit
