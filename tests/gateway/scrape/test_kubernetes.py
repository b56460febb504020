"""Targets that a Kubernetes API server tells, also one that fails."""

import asyncio
import base64
import json
import logging
import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway import metrics
from gateway.scrape.config import load_jobs
from gateway.scrape.discovery import Discovery, Target
from gateway.scrape.kubernetes import config, watch
from gateway.settings import GatewaySettings
from icestream.messages.raw import decode_raw
from icestream.settings import SettingError
from icestream.topics import RAW
from tests.gateway.scrape.api_server import ENDPOINTS, NODE, SERVICE, Object, api_server, pod, status
from tests.gateway.scrape.scraping import metric, scraping
from tests.gateway.scrape.servers import Certificates, Request, serving
from tests.gateway.scrape.test_scraper import good
from tests.pipeline.reading import messages
from tests.waiting import PATIENCE_S, wait_until

ALL_META = "relabel_configs: [{action: labelmap, regex: __meta_kubernetes_(.*), replacement: m_$1}]"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.scrape.discovery._CHANGES_S", 0.01)
    monkeypatch.setattr("gateway.scrape.kubernetes.watch._PAUSE_S", 0.01)
    monkeypatch.setattr("gateway.scrape.kubernetes.watch._LONGEST_PAUSE_S", 0.05)


class Followed:
    """Follows the targets of a job, as a scraper does."""

    def __init__(self, discovery: Discovery, runner: asyncio.Runner) -> None:
        self._discovery, self._runner = discovery, runner
        self.targets: dict[str, dict[str, str]] = {}

    def until(self, condition: Callable[[], object]) -> dict[str, dict[str, str]]:
        """Returns the labels of each target, by its address, once the condition is true."""

        async def follow() -> None:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    found: set[Target] = await self._discovery.targets(only_changed=True)
                    self.targets = {one.base.partition("://")[2]: dict(one.labels) for one in found}
                    if condition():
                        return
                    await asyncio.sleep(0.01)

        self._runner.run(follow())
        return self.targets

    def until_targets(self, *addresses: str) -> dict[str, dict[str, str]]:
        return self.until(lambda: set(self.targets) == set(addresses))


@contextmanager
def followed(folder: Path, source: str, more: str = ALL_META) -> Iterator[Followed]:
    """`source`: the fields of one in YAML."""
    (folder / "jobs.yaml").write_text(
        f"scrape_configs: [{{job_name: shop, kubernetes_sd_configs: [{{{source}}}], {more}}}]"
    )
    (job,) = load_jobs(folder / "jobs.yaml")
    with asyncio.Runner() as runner:

        async def make() -> Discovery:
            return Discovery(job)

        discovery = runner.run(make())
        try:
            yield Followed(discovery, runner)
        finally:
            runner.run(discovery.close())


def metas(labels: dict[str, str]) -> dict[str, str]:
    return {name.removeprefix("m_"): value for name, value in labels.items() if name.startswith("m_")}


def test_ports_of_pods_are_targets_as_in_prometheus(tmp_path: Path) -> None:
    with api_server() as (server, served):
        server.put("pods", pod("a", **{"prometheus.io/scrape": "true"}))
        server.put("pods", pod("ended", "10.1.0.9", "Succeeded"))
        server.put("pods", pod("waiting", "", "Pending"))
        with followed(tmp_path, f"role: pod, api_server: '{served.url}'") as one:
            targets = one.until_targets("10.1.0.7:8080", "10.1.0.7:6060", "10.1.0.7")
    common = {
        "namespace": "shop", "pod_name": "a", "pod_uid": "22a5a8be", "pod_ip": "10.1.0.7",
        "pod_host_ip": "192.168.0.1", "pod_phase": "Running", "pod_ready": "true", "pod_node_name": "node-1",
        "pod_controller_kind": "ReplicaSet", "pod_controller_name": "checkout-5d8",
        "pod_label_app": "checkout-app", "pod_labelpresent_app": "true",
        "pod_label_app_kubernetes_io_name": "checkout", "pod_labelpresent_app_kubernetes_io_name": "true",
        "pod_annotation_prometheus_io_scrape": "true", "pod_annotationpresent_prometheus_io_scrape": "true",
        "pod_container_init": "false", "pod_container_name": "app", "pod_container_image": "shop:1",
        "pod_container_id": "containerd://7c",
    }  # fmt: skip
    port = {"port_number": "6060", "port_name": "pprof", "port_protocol": "TCP"}
    assert metas(targets["10.1.0.7:6060"]) == common | {f"pod_container_{name}": port[name] for name in port}


def test_endpoints_have_the_labels_of_the_service_and_the_pod(tmp_path: Path) -> None:
    with api_server() as (server, served):
        server.put("endpoints", ENDPOINTS)
        server.put("services", SERVICE)
        server.put("pods", pod("a"))
        server.put("pods", pod("of no service", "10.1.0.9"))
        with followed(tmp_path, f"role: endpoints, api_server: '{served.url}'") as one:
            ready, other, unready = "10.1.0.7:8080", "10.1.0.7:6060", "10.1.0.8:8080"
            one.until_targets(ready, other, unready)
            targets = one.until(lambda: "m_service_name" in one.targets[ready])
    common = {
        "namespace": "shop", "endpoints_name": "checkout", "endpoints_label_team": "pay",
        "endpoints_labelpresent_team": "true", "service_name": "checkout",
        "service_annotation_prometheus_io_scrape": "true", "service_annotationpresent_prometheus_io_scrape": "true",
    }  # fmt: skip
    endpoint = {"endpoint_port_name": "http", "endpoint_port_protocol": "TCP"}
    assert metas(targets[unready]) == common | endpoint | {"endpoint_ready": "false"}
    behind = metas(targets[ready]).items()
    assert behind >= (common | endpoint | {"endpoint_ready": "true", "endpoint_node_name": "node-1"}).items()
    assert behind >= {"endpoint_address_target_name": "a", "pod_name": "a", "pod_container_port_name": "http"}.items()
    assert metas(targets[other]).items() >= (common | {"pod_name": "a", "pod_container_port_name": "pprof"}).items()


def test_nodes_are_their_kubelets(tmp_path: Path) -> None:
    with api_server() as (server, served):
        server.put("nodes", NODE)
        with followed(tmp_path, f"role: node, api_server: '{served.url}/k8s/clusters/c-1'") as one:
            (labels,) = one.until_targets("[fd00::1]:10250").values()
        assert server.asked[0].startswith("/k8s/clusters/c-1/api/v1/nodes?")
    assert labels["instance"] == "node-1"
    assert metas(labels) == {
        "node_name": "node-1", "node_provider_id": "kind://node-1", "node_label_kubernetes_io_arch": "arm64",
        "node_labelpresent_kubernetes_io_arch": "true", "node_address_InternalIP": "fd00::1",
        "node_address_Hostname": "node-1",
    }  # fmt: skip


def plain(name: str, ip: str) -> Object:
    """A pod without ports."""
    return {
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"containers": [{"name": "app"}]},
        "status": {"podIP": ip},
    }


def test_changes_come_without_another_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_PAGE", 2)
    with api_server() as (server, served):
        for number in range(5):
            server.put("pods", plain(f"p{number}", f"10.0.0.{number}"))
        selected = "namespaces: {names: [shop, pay]}, selectors: [{role: pod, label: 'app in (a,b)', field: 'x=1'}]"
        with followed(tmp_path, f"role: pod, api_server: '{served.url}', {selected}") as one:
            one.until_targets(*(f"10.0.0.{number}" for number in range(5)))
            server.put("pods", plain("p5", "10.0.0.5"))
            server.say("pods", "BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": "7"}})
            server.delete("pods", "p0")
            server.put("pods", plain("p1", "10.0.0.9"))
            one.until_targets(*(f"10.0.0.{number}" for number in (9, 2, 3, 4, 5)))
        lists = [asked for asked in server.asked if "watch" not in asked]
        assert len(lists) == 4  # three pages of one namespace, and one of the other
        assert {asked.split("?")[0] for asked in lists} == {
            f"/api/v1/namespaces/{name}/pods" for name in ("shop", "pay")
        }
        assert all("labelSelector=app+in+(a,b)&fieldSelector=x%3D1" in asked for asked in server.asked)


def failing() -> float:
    return float(metrics.SCRAPE_DISCOVERY_FAILING.labels("shop")._value.get())


def answering(body: bytes, code: int = 200) -> Callable[[Request], None]:
    return lambda request: request.answer(body, code, Content_Type="application/json")


FORBIDDEN = json.dumps(status(403, 'pods is forbidden: User "x" cannot list resource "pods"')).encode()
BAD_LISTS = {
    "truncated": (answering(b'{"kind": "PodList", "metadata": {"resourceVersion": "1"}, "ite'), "expected JSON"),
    "forbidden": (answering(FORBIDDEN, 403), 'it answers 403 Forbidden: pods is forbidden: User "x" cannot list'),
    "huge": (answering(b"[" + b" " * 2000), "a page of the list has more than 1000 bytes"),
    "no list": (answering(b'{"metadata": {"resourceVersion": "1"}, "items": {"a": 1}}'), "expected a list of objects"),
    "no object": (answering(b'{"metadata": {"resourceVersion": "1"}, "items": [7]}'), "expected objects with metadata"),
    "no version": (answering(b'{"metadata": {}, "items": null}'), "expected a resourceVersion"),
    "nested": (answering(b"[" * 900), "expected JSON"),
    "text": (answering(b"<html>", 502), "it answers 502"),
}  # fmt: skip


@pytest.mark.parametrize("bad", BAD_LISTS)
def test_a_list_that_cannot_be_read_is_told_and_asked_for_again(
    bad: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watch, "_LARGEST_PAGE", 1000)
    with api_server() as (server, served), followed(tmp_path, f"role: pod, api_server: '{served.url}'") as one:
        server.instead["list"], told = BAD_LISTS[bad]
        one.until(failing)
        assert told in caplog.text
        server.instead.clear()
        server.put("pods", plain("a", "10.0.0.1"))
        one.until_targets("10.0.0.1")
        assert failing() == 0


BAD_WATCHES: dict[str, tuple[Callable[[Request], None], str]] = {
    "expired": (answering(json.dumps(status(410, "too old")).encode(), 410), ""),
    "expired later": (answering(json.dumps({"type": "ERROR", "object": status(410, "")}).encode() + b"\n"), ""),
    "forbidden": (answering(FORBIDDEN, 403), "403 Forbidden"),
    "an error": (answering(json.dumps({"type": "ERROR", "object": status(500, "etcd")}).encode() + b"\n"), "'etcd'"),
    "huge": (answering(b"x" * 2000), "an object has more than 1000 bytes"),
    "no JSON": (answering(b"<html>\n"), "expected JSON"),
    "no object": (answering(b'{"type": "ADDED", "object": 7}\n'), "expected changes"),
    "ends at once": (answering(b""), ""),
    "cut": (answering(b'{"type": "ADDED", "obj'), ""),
}  # fmt: skip


@pytest.mark.parametrize("bad", BAD_WATCHES)
def test_targets_stay_while_a_watch_fails_and_are_right_after_it(
    bad: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watch, "_LARGEST_OBJECT", 1000)
    with api_server() as (server, served):
        server.put("pods", plain("a", "10.0.0.1"))
        server.put("pods", plain("b", "10.0.0.2"))
        answer, told = BAD_WATCHES[bad]
        server.instead["watch"] = answer
        with followed(tmp_path, f"role: pod, api_server: '{served.url}'") as one:
            one.until_targets("10.0.0.1", "10.0.0.2")
            one.until(lambda: sum("watch" in asked for asked in server.asked) > 2)
            if told:
                one.until(lambda: told in caplog.text)
            assert set(one.targets) == {"10.0.0.1", "10.0.0.2"}
            server.delete("pods", "a")
            server.instead.clear()
            one.until_targets("10.0.0.2")
            one.until(lambda: failing() == 0)


HOSTILE: list[Object] = [
    {"metadata": {"name": "labels", "namespace": "shop", "labels": [1]}},
    {"metadata": {"name": "values", "namespace": "shop", "annotations": {"a": 7}}},
    {"metadata": {"name": "spec", "namespace": "shop"}, "spec": 7},
    {"metadata": {"name": "containers", "namespace": "shop"}, "spec": {"containers": {"a": 1}}},
    {"metadata": {"name": "container", "namespace": "shop"}, "spec": {"containers": [{"image": "a"}]}},
    {
        "metadata": {"name": "port", "namespace": "shop"},
        "spec": {"containers": [{"name": "a", "ports": [{"containerPort": 7e9}]}]},
    },
    plain("address", "10.0.0.1@elsewhere"),
    plain("address-list", ["10.0.0.1"]),  # type: ignore[arg-type]
]  # fmt: skip


def test_what_is_no_pod_is_left_out_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gateway.scrape")
    with api_server() as (server, served):
        for one in [*HOSTILE, plain("good", "10.0.0.1")]:
            server.put("pods", one)
        with followed(tmp_path, f"role: pod, api_server: '{served.url}'") as follow:
            follow.until_targets("10.0.0.1")
            assert float(metrics.SCRAPE_INVALID_TARGETS.labels("shop")._value.get()) == len(HOSTILE)
            for one in HOSTILE:
                assert f"shop/{one['metadata']['name']}: " in caplog.text
                server.delete("pods", one["metadata"]["name"])
            follow.until(lambda: metrics.SCRAPE_INVALID_TARGETS.labels("shop")._value.get() == 0)


def test_a_kubeconfig_says_how_to_ask(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    ca, cert, key = (
        base64.b64encode(Path(certificates.file(name)).read_bytes()).decode()
        for name in ("ca.pem", "client.pem", "client.key")
    )
    with api_server(context=certificates.context(client=ssl.CERT_REQUIRED)) as (server, served):
        server.put("pods", plain("a", "10.0.0.1"))
        (tmp_path / "token").write_text("secret")
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "preferences": {},
            "current-context": "here",
            "contexts": [{"name": "other", "context": {}}, {"name": "here", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": served.url, "certificate-authority-data": ca}}],
            "users": [
                {
                    "name": "u",
                    "user": {"client-certificate-data": cert, "client-key-data": key, "tokenFile": "token"},
                }
            ],
        }
        (tmp_path / "kubeconfig").write_text(json.dumps(kubeconfig))
        with followed(tmp_path, f"role: pod, kubeconfig_file: {tmp_path}/kubeconfig") as one:
            one.until_targets("10.0.0.1")
    assert {*served.client_names} == {"client"}
    assert {*served.authorizations} == {"Bearer secret"}


def test_in_a_pod_the_service_account_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificates = Certificates(tmp_path)
    (tmp_path / "ca.crt").write_bytes(Path(certificates.file("ca.pem")).read_bytes())
    (tmp_path / "namespace").write_text("shop")
    (tmp_path / "token").write_text("first")
    with api_server(context=certificates.context()) as (server, served):
        monkeypatch.setattr(config, "_SERVICE_ACCOUNT", str(tmp_path))
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(served.port))
        server.put("pods", plain("a", "10.0.0.1"))
        with followed(tmp_path, "role: pod, namespaces: {own_namespace: true}") as one:
            one.until_targets("10.0.0.1")
            (tmp_path / "token").write_text("second")  # Kubernetes changes it every hour
            server.say("pods", "ERROR", status(410, ""))
            one.until(lambda: "Bearer second" in served.authorizations)
    assert server.asked[0].startswith("/api/v1/namespaces/shop/pods?")
    assert served.authorizations[0] == "Bearer first"


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("role: pod", "expected api_server or kubeconfig_file, as this is no pod"),
        ("role: ingress, api_server: 'http://a'", "role: expected pod, endpoints, node, got 'ingress'"),
        ("role: pod, api_server: 'a:6443'", "api_server: expected http"),
        ("role: pod, bearer_token: t", "expected an api_server"),
        ("role: pod, api_server: 'http://a', kubeconfig_file: f", "expected one of api_server and kubeconfig_file"),
        ("role: pod, kubeconfig_file: /nowhere/kubeconfig", "a kubeconfig cannot be read"),
        ("role: node, api_server: 'http://a', namespaces: {names: [shop]}", "nodes are in no namespace"),
        ("role: pod, api_server: 'http://a', namespaces: {names: ['../x']}", "expected the name of a namespace"),
        ("role: pod, api_server: 'http://a', selectors: [{role: node}]", "role: expected one of pod, each once"),
        ("role: pod, api_server: 'http://a', attach_metadata: {node: true}", "does not support attach_metadata"),
    ],
)
def test_mistakes_are_told(source: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(SettingError, match=re.escape(told)), followed(tmp_path, source):
        pass


@pytest.mark.parametrize(
    ("user", "told"),
    [
        ("exec: {command: aws}", "icestream runs no program for credentials (exec)"),
        ("client-key-data: '???'", "client-key-data: expected base64"),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_told(user: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text(
        "{current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],"
        f" clusters: [{{name: a, cluster: {{server: 'https://a:6443'}}}}], users: [{{name: a, user: {{{user}}}}}]}}"
    )
    source = f"role: pod, kubeconfig_file: {tmp_path}/kubeconfig"
    with pytest.raises(SettingError, match=re.escape(told)), followed(tmp_path, source):
        pass


def test_pods_with_the_annotations_of_the_documentation_are_scraped(settings: GatewaySettings, tmp_path: Path) -> None:
    """A pod has the address 127.0.0.1, so it is this process."""
    text = Path("docs/gateway.md").read_text().partition("### Kubernetes")[2].split("```")[1].removeprefix("yaml\n")
    with api_server() as (server, served), serving(lambda request: request.answer(good())) as target:
        grafana = "profiles.grafana.com"
        annotations = {f"{grafana}/cpu.scrape": "true", f"{grafana}/cpu.port": str(target.port)}
        server.put("pods", pod("grafana", "127.0.0.1", **annotations))
        server.put("pods", pod("own", "127.0.0.1", **{"pprof.io/scrape": "true", "pprof.io/port": str(target.port)}))
        server.put("pods", pod("none", "127.0.0.1"))
        jobs = text.replace("{role: pod}", f"{{role: pod, api_server: '{served.url}'}}")
        jobs = jobs.replace("    kubernetes_sd", "    scrape_interval: 1s\n    kubernetes_sd")
        with scraping(settings, tmp_path / "jobs.yaml", jobs):
            for job in ("cpu", "annotated"):
                wait_until(lambda job=job: metric("scrape_targets", job=job) == 1)  # type: ignore[misc]
                wait_until(lambda job=job: metric("scrapes_total", job=job, result="ok") >= 1)  # type: ignore[misc]
            server.delete("pods", "own")
            wait_until(lambda: metric("scrape_targets", job="annotated") == 0)
    labels = [dict(labels) for message in messages(settings, RAW) for labels in decode_raw(message.value()).series]
    assert {one["pod"]: (one["service"], one["namespace"]) for one in labels} == {
        "grafana": ("checkout", "shop"), "own": ("checkout-app", "shop"),
    }  # fmt: skip
