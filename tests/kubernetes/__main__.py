"""Installs the chart on a Kubernetes of two nodes on this machine, profiles an application, drains, rolls, uninstalls.

    python -m tests.kubernetes [--images FOLDER]

Needs root. It takes a quarter of an hour, a third of it for the images. A folder of images is filled if it is empty.
"""

import argparse
import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from icestream.version import VERSION
from standalone.supervisor.local_kafka import CONFIGURATION, LocalKafka
from tests.kubernetes.cluster import API, NODES, Cluster, running_cluster
from tests.kubernetes.images import build_images
from tests.pipeline.docker_host import ROOT
from tests.waiting import wait_until

CHART = ROOT / "deploy/helm/icestream"
PROGRAM = ROOT / "tests/pipeline/boxed.py"
BEGIN = time.monotonic()
PATIENCE_S = 300.0
RELEASE = "app.kubernetes.io/instance=icestream"
HOLES_OF_A_ROLL = {"not_running", "lower_rate"}
"""A collector that is replaced samples nothing for a moment, and a new one may take more CPU than its budget."""
VOLUME: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": {"name": "disk"},
    "spec": {
        "capacity": {"storage": "20Gi"},
        "accessModes": ["ReadWriteOnce"],
        "nodeAffinity": {
            "required": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [*NODES]}]}
                ]
            }
        },
    },
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kubernetes", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=Path, help="folder of images")
    images = parser.parse_args().images
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # as Ctrl-C: everything is ended
    with tempfile.TemporaryDirectory(prefix="icestream-kubernetes-") as scratch:
        folder = Path(scratch)
        images = images or folder / "images"
        if not list(images.glob("*.tar")):
            images.mkdir(parents=True, exist_ok=True)
            (folder / "docker").mkdir()
            build_images(folder / "docker", images)
            step("images are built")
        (folder / "cluster").mkdir()
        with running_cluster(folder / "cluster") as cluster:
            step(f"{' and '.join(NODES)} are ready: {cluster.kubectl('version').splitlines()[-1]}")
            for name in NODES:
                for image in sorted(images.glob("*.tar")):
                    cluster.ctr(name, "images", "import", str(image))
            step("images are loaded")
            try:
                trial(cluster)
                parts(cluster)
            except AssertionError:
                print(state(cluster))
                raise
    return 0


def step(text: str) -> None:
    print(f"{time.monotonic() - BEGIN:5.0f} s  {text}", flush=True)


def trial(cluster: Cluster) -> None:
    """Everything in one pod, and a collector beside it."""
    disk = cluster.folder / "disk"
    disk.mkdir()
    volume = VOLUME | {"spec": {"local": {"path": str(disk)}} | VOLUME["spec"]}
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(volume))
    go_through(cluster, ("statefulset/icestream-trial",), f"icestream:{VERSION}-full", "trial=true")


def parts(cluster: Cluster) -> None:
    """All parts, with a Kafka with SASL and a ClickHouse outside of the cluster."""
    template = cluster.folder / "server.properties"
    text = (CONFIGURATION / "server.properties").read_text()
    text = text.replace("advertised.listeners=CLIENTS://127.0.0.1", f"advertised.listeners=CLIENTS://{API}")
    template.write_text(text.replace("\nlisteners=CLIENTS://127.0.0.1", "\nlisteners=CLIENTS://0.0.0.0"))
    kafka = LocalKafka(cluster.folder / "kafka", 29092, template, login=True)
    login = kafka.settings()
    command = [sys.executable, "-m", "tests.kubernetes.clickhouse", str(cluster.folder / "clickhouse")]
    with (
        contextlib.closing(kafka),
        open(cluster.folder / "clickhouse.log", "wb") as log,
        subprocess.Popen([*command, f"{API}:28123", "icestream:secret"], stdout=log, stderr=log) as clickhouse,
    ):
        try:
            kafka.start()
            secret = ("create", "secret", "generic")
            url = f"http://icestream:secret@{API}:28123/default"
            cluster.kubectl(*secret, "icestream-clickhouse", f"--from-literal=url={url}")
            user, password = login.kafka_sasl_username, login.kafka_sasl_password
            cluster.kubectl(*secret, "kafka", f"--from-literal=username={user}", f"--from-literal=password={password}")
            go_through(
                cluster,
                tuple(f"deployment/icestream-{name}" for name in ("streams", "sinks", "api", "gateway")),
                f"icestream:{VERSION}",
                f"kafka.bootstrapServers={API}:29092",
                f"kafka.securityProtocol={login.kafka_security_protocol}",
                f"kafka.saslMechanism={login.kafka_sasl_mechanism}",
                "kafka.saslSecret.name=kafka",
                "clickhouse.urlSecret.name=icestream-clickhouse",
                "topics.partitions=4",
                # This machine has fewer CPUs than the chart asks for.
                *(f"{name}.resources.requests.cpu=50m" for name in ("streams", "sinks", "api", "gateway")),
            )
            cluster.kubectl("delete", "secret", "kafka", "icestream-clickhouse")
        finally:
            clickhouse.terminate()


def go_through(cluster: Cluster, workloads: tuple[str, ...], image: str, *values: str) -> None:
    """Installs, profiles an application, drains each node, replaces all pods, and uninstalls."""
    others = names(cluster)
    run = install(cluster, *values)
    start_shop(cluster, run, image)
    with cluster.forwarded("svc/icestream-api", 4060) as port:
        begin = time.time()
        see_shop(cluster, port)
        print(cluster.kubectl("exec", "ds/icestream-collector", "--", "icestream", "collect", "--check"))
        until = settled(port)
        before = total(port, begin, until)
    for name in NODES:
        drain(cluster, name, *workloads)
    with cluster.forwarded("svc/icestream-api", 4060) as port:
        see_shop(cluster, port)
        nothing_lost(port, begin, until, before, {"lower_rate"})
    for workload in (*workloads, "daemonset/icestream-collector"):
        roll(cluster, workload)
    with cluster.forwarded("svc/icestream-api", 4060) as port:
        nothing_lost(port, begin, until, before, HOLES_OF_A_ROLL)
    uninstall(cluster)
    assert names(cluster) == others
    step("helm uninstall left nothing, and secrets that are not its own")


def install(cluster: Cluster, *values: str) -> Path:
    """Installs the chart. Returns the folder of this machine that the collector has as /run/icestream."""
    paths = {name: cluster.folder / "host" / name for name in ("spool", "cache", "run")}
    mine = [f"collector.hostPaths.{name}={path}" for name, path in paths.items()]
    options = [f"--set={value}" for value in (*mine, *values)]
    cluster.run("helm", "install", "icestream", str(CHART), *options, "--wait", "--timeout=5m")
    # Helm does not wait for a pod of a DaemonSet that may be away.
    cluster.kubectl("rollout", "status", "daemonset/icestream-collector", "--timeout=5m")
    step(f"helm install: all pods are ready with {', '.join(values)}")
    return paths["run"]


def start_shop(cluster: Cluster, run: Path, image: str) -> None:
    """Starts an application of two pods in a namespace of its own."""
    cluster.kubectl("create", "namespace", "shop")
    cluster.kubectl("create", "configmap", "program", "--namespace=shop", f"--from-file={PROGRAM}")
    manifest = (ROOT / "tests/kubernetes/shop.yaml").read_text().replace("IMAGE", image).replace("RUN", str(run))
    cluster.kubectl("apply", "-f", "-", stdin=manifest)
    cluster.kubectl("rollout", "status", "deployment/shop", "--namespace=shop", "--timeout=2m")
    step("two pods of an application run")


def see_shop(cluster: Cluster, port: int) -> None:
    """Waits for samples of both pods with all labels, and for their requests."""
    begin = time.time()
    for pod in cluster.objects("pods", "--namespace=shop"):
        labels = {"namespace": "shop", "pod": pod["metadata"]["name"], "container": "web", "workload": "shop"}
        labels["node"] = pod["spec"]["nodeName"]
        selector = "{" + ", ".join(f'{name}="{value}"' for name, value in labels.items()) + "}"
        wait_until(
            lambda selector=selector: total(port, begin - 60, time.time(), selector) > 0,  # type: ignore[misc]
            lambda: {name: ask(port, f"labels/{name}/values") for name in ("namespace", "pod", "workload", "node")},
            PATIENCE_S,
        )
        step(f"samples of {selector}")
    wait_until(
        lambda: "GET /boxed" in json.dumps(ask(port, "operations", selector='{service="shop"}')), seconds=PATIENCE_S
    )
    step("the CPU of its requests is known")


def drain(cluster: Cluster, name: str, *workloads: str) -> None:
    """Empties a node as its operator does, and lets it have pods again once they are ready elsewhere. A part that has
    two pods always has a ready one, also when both are on this node."""
    command = ("drain", name, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=5m")
    with ThreadPoolExecutor() as thread:
        draining = thread.submit(cluster.kubectl, *command)
        while not draining.done():
            ready = {
                one["metadata"]["name"]: one["status"].get("readyReplicas", 0)
                for one in cluster.objects("deployments", "-l", RELEASE)
            }
            assert all(ready.values()), ready
            time.sleep(0.5)
        draining.result()
    left = cluster.objects("pods", "-A", f"--field-selector=spec.nodeName={name}")
    assert {owner["kind"] for pod in left for owner in pod["metadata"]["ownerReferences"]} == {"DaemonSet"}
    for workload in workloads:
        cluster.kubectl("rollout", "status", workload, "--timeout=5m")
    cluster.kubectl("rollout", "status", "deployment/shop", "--namespace=shop", "--timeout=5m")
    cluster.kubectl("uncordon", name)
    step(f"{name} was drained: {', '.join(workloads)} are ready elsewhere")


def roll(cluster: Cluster, workload: str) -> None:
    cluster.kubectl("rollout", "restart", workload)
    cluster.kubectl("rollout", "status", workload, "--timeout=5m")
    step(f"{workload} is rolled")


def nothing_lost(port: int, begin: float, until: float, before: int, allowed: set[str]) -> None:
    """Checks that samples until a time are still the same, and that none is missing since then."""
    end = settled(port)
    after = total(port, begin, until)
    assert after == before, (after, before)
    found = ask(port, "completeness", start=begin, end=end)
    kinds = {hole["kind"] for hole in found["holes"]}
    assert kinds <= allowed, found
    seconds = sum(hole["seconds"] for hole in found["holes"] if hole["kind"] == "not_running")
    step(f"nothing is lost in {found['windows']} windows: {before} ns of CPU were {after} ns after it")
    step(f"collectors did not run for {seconds:.0f} s; holes: {', '.join(sorted(kinds)) or 'none'}")


def settled(port: int) -> float:
    """Returns a time, once all samples until then are stored: those of a node come in the order of time."""
    now = time.time()
    for name in NODES:
        of_node = f'{{host="{name}"}}'
        wait_until(lambda of_node=of_node: total(port, now, time.time() + 1, of_node) > 0, seconds=PATIENCE_S)  # type: ignore[misc]
    return now


def uninstall(cluster: Cluster) -> None:
    """Removes the application and the release, and checks that nothing of it stays in the cluster."""
    cluster.kubectl("delete", "namespace", "shop")
    cluster.run("helm", "uninstall", "icestream", "--wait")
    kinds = cluster.kubectl("api-resources", "--verbs=list", "-o", "name").split()
    kinds = [kind for kind in kinds if not kind.startswith("events")]
    wait_until(lambda: not cluster.objects(",".join(kinds), "-A", "-l", RELEASE), lambda: state(cluster), PATIENCE_S)


def names(cluster: Cluster) -> set[str]:
    """What is in the namespace of the release."""
    return {one["metadata"]["name"] for one in cluster.objects("all,pvc,secret,configmap", "--namespace=default")}


def total(port: int, start: float, end: float, selector: str = "{}") -> int:
    """CPU in nanoseconds."""
    text = ask(port, "merge", format="collapsed", selector=selector, start=start, end=end)
    return sum(int(line.rpartition(" ")[2]) for line in text.splitlines())


def ask(port: int, path: str, **query: Any) -> Any:
    """Returns the API's JSON or text. Raises AssertionError with what it says."""
    url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            body = answer.read().decode()
            return json.loads(body) if "json" in answer.headers["content-type"] else body
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{url}: {error} {error.read()[:1000]!r}") from error


def state(cluster: Cluster) -> str:
    """What a person would look at when it does not work."""
    commands = [
        ("get", "all,pvc", "-A", "-o", "wide"),
        ("get", "events", "-A", "--sort-by=.lastTimestamp"),
        ("logs", "--tail=30", "-l", RELEASE, "--all-containers", "--prefix"),
    ]
    text = ""
    for command in commands:
        try:
            text += f"$ kubectl {' '.join(command)}\n{cluster.kubectl(*command)[-6000:]}\n"
        except AssertionError as error:
            text += f"{error}\n"
    return text


if __name__ == "__main__":
    sys.exit(main())
