"""A Kubernetes of two nodes on this machine: etcd, containerd and CNI of Debian, the rest by build_tools.sh.

Each node has a kubelet, a containerd, control groups, an ID of the machine and folders of its host. They share the
kernel, so each can see the processes of both, and the network of pods.

There is no kube-proxy and no iptables: two addresses of Services, those of the API server and of CoreDNS, are this
machine's own. So other Services work with `kubectl port-forward`, and headless ones by DNS.
"""

import contextlib
import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.kubernetes.images import PAUSE
from tests.kubernetes.tools import TOOLS
from tests.waiting import wait_until

API, DNS = "10.96.0.1", "10.96.0.10"
NODES = {"node-1": API, "node-2": "10.97.0.2"}
"""Addresses by name."""
BRIDGE = "icestream0"
_SYSCTLS = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops")
"""A kubelet changes them."""

_CONTAINERD = """
version = 2
root = "{0}/containerd"
state = "{0}/containerd-state"
[grpc]
  address = "{0}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{0}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{1}"
  restrict_oom_score_adj = true  # this machine may not be allowed to lower scores
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "{2}"
"""
_CNI = {
    "cniVersion": "1.0.0",
    "name": "icestream",
    "plugins": [
        {
            "type": "bridge",
            "bridge": BRIDGE,
            "isGateway": True,
            "hairpinMode": True,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]},
        },
        {"type": "loopback"},
    ],
}
_DNS = """
.:53 {{
  bind {DNS}
  errors
  kubernetes cluster.local {{
    kubeconfig {0}/kubeconfig
  }}
}}
"""


class Cluster:
    """A running cluster. Its folder has a log of each program."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._environ = os.environ | {
            "KUBECONFIG": f"{folder}/kubeconfig",
            "HELM_CACHE_HOME": f"{folder}/helm",
            "PATH": f"{TOOLS}:/usr/sbin:/usr/bin:/sbin:/bin",
        }

    def run(self, *command: str, stdin: str = "") -> str:
        """Runs `kubectl`, `helm` or another program, and returns what it prints. Raises AssertionError with what it
        says."""
        done = subprocess.run(command, env=self._environ, capture_output=True, text=True, input=stdin, check=False)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        return self.run("kubectl", *arguments, stdin=stdin)

    def objects(self, *arguments: str) -> list[dict[str, Any]]:
        """What `kubectl get` finds."""
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", *arguments, "-o", "json"))["items"]
        return found

    def ctr(self, name: str, *arguments: str) -> str:
        """Asks the containerd of a node."""
        address = f"{self.folder}/{name}/containerd.sock"
        return self.run("ctr", "--address", address, "--namespace", "k8s.io", *arguments)

    @contextmanager
    def forwarded(self, target: str, port: int) -> Iterator[int]:
        """A port of this machine that leads to a port of a pod or a Service."""
        command = ["kubectl", "port-forward", target, f":{port}"]
        with subprocess.Popen(command, env=self._environ, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                assert line.startswith("Forwarding from 127.0.0.1:"), line
                yield int(line.split()[2].rpartition(":")[2])
            finally:
                process.terminate()

    def _start(self, programs: ExitStack, *command: str, log: str = "") -> int:
        """Starts a program, which ends with `programs`: Ctrl-C does not end it before the pods have ended."""
        with open(self.folder / f"{log or command[0]}.log", "wb") as file:
            process = subprocess.Popen(command, env=self._environ, stdout=file, stderr=file, start_new_session=True)
        programs.callback(_end, process)
        return process.pid

    def _is_ready(self) -> bool:
        states = "jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}"
        return self.kubectl("get", "nodes", "-o", states).split() == ["True" for _ in NODES]

    def _answers(self, *command: str) -> bool:
        try:
            self.run(*command)
        except AssertionError:
            return False
        return True


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster, which ends with all its pods, and leaves no process, mount, address or control group."""
    cluster = Cluster(folder)
    _write_configuration(folder)
    sysctls = {name: Path("/proc/sys", name).read_text() for name in _SYSCTLS}
    with ExitStack() as programs:
        for address in (*NODES.values(), DNS):
            cluster.run("ip", "address", "replace", f"{address}/32", "dev", "lo")
            programs.callback(cluster.run, "ip", "address", "del", f"{address}/32", "dev", "lo")
        programs.callback(_put_back, sysctls)
        programs.callback(_remove_network)
        etcd = "http://127.0.0.1:22379"
        peers = "http://127.0.0.1:22380"
        cluster._start(
            programs, "etcd", f"--data-dir={folder}/etcd", f"--listen-client-urls={etcd}", "--unsafe-no-fsync",
            f"--advertise-client-urls={etcd}", f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
        )  # fmt: skip
        key = f"{folder}/service-accounts.key"
        cluster._start(
            programs, "kube-apiserver", f"--etcd-servers={etcd}", f"--cert-dir={folder}/certificates",
            f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc", f"--token-auth-file={folder}/tokens",
            "--authorization-mode=RBAC,Node", f"--bind-address={API}", f"--advertise-address={API}",
            "--secure-port=443", "--service-cluster-ip-range=10.96.0.0/16", "--allow-privileged=true",
            "--kubelet-preferred-address-types=InternalIP",
        )  # fmt: skip
        wait_until(lambda: cluster._answers("kubectl", "get", "--raw", "/readyz"), lambda: f"see {folder}")
        access = f"--kubeconfig={folder}/kubeconfig"
        cluster._start(
            programs, "kube-controller-manager", access, "--use-service-account-credentials", "--leader-elect=false",
            f"--service-account-private-key-file={key}", f"--root-ca-file={folder}/certificates/apiserver.crt",
        )  # fmt: skip
        cluster._start(programs, "kube-scheduler", access, "--leader-elect=false")
        cluster._start(programs, "coredns", "-conf", f"{folder}/Corefile")
        for name in NODES:
            _start_node(cluster, programs, name)
        wait_until(cluster._is_ready, lambda: f"see {folder}/*/kubelet.log")
        yield cluster


def _start_node(cluster: Cluster, programs: ExitStack, name: str) -> None:
    """Starts containerd and the kubelet where they see an ID of the machine and host folders of their own."""
    folder = cluster.folder / name
    _write_node(folder, NODES[name])
    for hierarchy in _cgroups():
        (hierarchy / _cgroup(name)).mkdir(exist_ok=True)
    own = f"mount --bind {folder}/machine-id /etc/machine-id && mount --bind {folder}/host {cluster.folder}/host"
    run = f"{own} && exec containerd --config={folder}/containerd.toml"
    containerd = cluster._start(programs, "unshare", "--mount", "sh", "-c", run, log=f"{name}/containerd")
    programs.callback(_end_pods, cluster, name)
    address = f"{folder}/containerd.sock"
    wait_until(lambda: cluster._answers("ctr", "--address", address, "version"), lambda: f"see {folder}")
    cluster._start(
        programs, "nsenter", f"--mount=/proc/{containerd}/ns/mnt", "kubelet", f"--config={folder}/kubelet.json",
        f"--kubeconfig={cluster.folder}/kubeconfig", f"--root-dir={folder}/kubelet", f"--cert-dir={folder}/pki",
        f"--hostname-override={name}", f"--node-ip={NODES[name]}", log=f"{name}/kubelet",
    )  # fmt: skip


def _write_configuration(folder: Path) -> None:
    for name in ("cni", "host"):
        (folder / name).mkdir()
    (folder / "cni/icestream.conflist").write_text(json.dumps(_CNI))
    (folder / "Corefile").write_text(_DNS.format(folder, DNS=DNS))
    (folder / "tokens").write_text('admin,admin,admin,"system:masters"\n')
    cluster = {"server": f"https://{API}", "insecure-skip-tls-verify": True}
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "icestream", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": "admin"}}],
        "contexts": [{"name": "icestream", "context": {"cluster": "icestream", "user": "admin"}}],
        "current-context": "icestream",
    }
    (folder / "kubeconfig").write_text(json.dumps(kubeconfig))
    command = ["openssl", "genrsa", "-out", str(folder / "service-accounts.key"), "2048"]
    subprocess.run(command, check=True, capture_output=True)


def _write_node(folder: Path, address: str) -> None:
    (folder / "host").mkdir(parents=True)
    (folder / "machine-id").write_text(f"{uuid.uuid4().hex}\n")
    (folder / "containerd.toml").write_text(_CONTAINERD.format(folder, PAUSE, folder.parent / "cni"))
    kubelet = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "healthzPort": 0,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": f"unix://{folder}/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{_cgroup(folder.name)}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "makeIPTablesUtilChains": False,
        "clusterDNS": [DNS],
        "clusterDomain": "cluster.local",
        "resolvConf": "",
        "podLogsDir": f"{folder}/pod-logs",
        "volumePluginDir": f"{folder}/volume-plugins",
        "imageGCHighThresholdPercent": 100,  # the disk of this machine may be full of other things
        "evictionHard": {"memory.available": "100Mi"},
    }
    (folder / "kubelet.json").write_text(json.dumps(kubelet))


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _end_pods(cluster: Cluster, name: str) -> None:
    """Ends what runs in a node's containerd, once its kubelet has ended."""
    for task in cluster.ctr(name, "tasks", "list", "--quiet").split():
        with contextlib.suppress(AssertionError):
            cluster.ctr(name, "tasks", "delete", "--force", task)
    for hierarchy in _cgroups():
        for cgroup in sorted(hierarchy.glob(f"{_cgroup(name)}/**/"), key=lambda path: -len(path.parts)):
            with contextlib.suppress(OSError):
                cgroup.rmdir()


def _remove_network() -> None:
    for namespace in Path("/run/netns").glob("cni-*"):
        subprocess.run(["ip", "netns", "delete", namespace.name], check=False)
    subprocess.run(["ip", "link", "delete", BRIDGE], check=False, capture_output=True)


def _cgroup(name: str) -> str:
    return f"icestream-{name}"


def _cgroups() -> list[Path]:
    """The hierarchies of control groups: version 1 has many, version 2 one."""
    root = Path("/sys/fs/cgroup")
    if not (root / "cgroup.controllers").exists():
        return [path for path in root.iterdir() if path.is_dir() and not path.is_symlink()]
    controllers = (root / "cgroup.controllers").read_text().split()
    (root / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in controllers))
    return [root]


def _put_back(sysctls: dict[str, str]) -> None:
    for name, value in sysctls.items():
        Path("/proc/sys", name).write_text(value)
