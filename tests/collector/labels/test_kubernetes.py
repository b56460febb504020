"""Pods of this node, asked of a server that answers as the kubelet and the API server do."""

import contextlib
import http.server
import json
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector import metrics
from collector.labels.kubernetes import KubernetesError, Pods, PodSource, api_server, fetch, kubelet, parse
from tests.waiting import PATIENCE_S, wait_until

UID = "1cf9e9b0-6b7e-4c5d-9d7b-2f6a1a8d3c11"
STATIC = "ab12" * 8
SHOP, INIT, MESH, BEFORE = (c * 64 for c in "0123")


def pod(uid: str = UID, **metadata: Any) -> dict[str, Any]:
    """As the kubelet shows it, with what is of no use here left out."""
    return {
        "metadata": {
            "name": "shop-7d4f9c6b8d-x2x5k",
            "generateName": "shop-7d4f9c6b8d-",
            "namespace": "prod",
            "uid": uid,
            "labels": {
                "app.kubernetes.io/name": "shop",
                "app": "other",
                "team": "blue",
                "pod-template-hash": "7d4f9c6b8d",
            },
            "annotations": {
                "kubernetes.io/config.seen": "2026-11-21T10:00:00.1Z",
                "kubernetes.io/config.source": "api",
            },
        }
        | metadata,
        "spec": {"nodeName": "node-1", "containers": [{"name": "main", "image": "shop:1.4"}, {"name": "istio-proxy"}]},
        "status": {
            "phase": "Running",
            "containerStatuses": [
                {
                    "name": "main",
                    "state": {"running": {"startedAt": "2026-11-21T10:00:02Z"}},
                    "lastState": {"terminated": {"exitCode": 137, "containerID": f"containerd://{BEFORE}"}},
                    "containerID": f"containerd://{SHOP}",
                },
                {"name": "istio-proxy", "state": {"running": {}}, "lastState": {}, "containerID": f"cri-o://{MESH}"},
                {"name": "waits", "state": {"waiting": {"reason": "ContainerCreating"}}, "lastState": {}},
            ],
            "initContainerStatuses": [{"name": "migrate", "containerID": f"docker://{INIT}"}],
        },
    }


def pod_list(*pods: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": list(pods)}


@dataclass
class Server:
    """Answers with `content`; keeps the paths and the Authorization headers that came."""

    content: bytes = field(default_factory=lambda: json.dumps(pod_list(pod())).encode())
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)
    url: str = ""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 and its key, in one file."""
    folder = tmp_path_factory.mktemp("tls")
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=kubelet "
        "-addext subjectAltName=IP:127.0.0.1 -keyout key -out cert"
    )
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    both = folder / "both.pem"
    both.write_bytes((folder / "cert").read_bytes() + (folder / "key").read_bytes())
    return both


def serve(certificate: Path | None) -> Iterator[Server]:
    state = Server()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.paths.append(self.path)
            state.tokens.append(self.headers["Authorization"])
            self.send_response(state.status)
            for name, value in state.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(state.content)

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        state.url = f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_address[1]}"
        yield state
        server.shutdown()
        thread.join()


@pytest.fixture
def plain() -> Iterator[Server]:
    yield from serve(None)


@pytest.fixture
def tls(certificate: Path) -> Iterator[Server]:
    yield from serve(certificate)


def known(pods: Pods, uid: str, container: str = "") -> Any:
    """The pod, once the answer is there."""
    wait_until(lambda: pods.find(uid, container), lambda: "the pod stays unknown")
    return pods.find(uid, container)


def test_a_pod_is_known_soon_after_a_process_of_it_shows_up(plain: Server) -> None:
    pods = Pods(PodSource(f"{plain.url}/pods"), pause=60)  # a pod that is asked for again meanwhile is read later
    assert pods.find(UID, SHOP) is None, "nothing waits"
    found = known(pods, UID, SHOP)
    assert (found.name, found.namespace, found.node, found.app) == ("shop-7d4f9c6b8d-x2x5k", "prod", "node-1", "shop")
    assert found.labels["team"] == "blue"
    assert found.containers == {
        SHOP: ("main", "containerd"),
        BEFORE: ("main", "containerd"),
        MESH: ("istio-proxy", "cri-o"),
        INIT: ("migrate", "docker"),
    }
    assert [pods.find(UID, c) for c in (SHOP, MESH, INIT, "")] == [found] * 4
    assert not pods._wanted.is_set(), "a known pod is not asked for"
    pods.close()


def test_a_container_started_since_is_asked_for(plain: Server) -> None:
    pods = Pods(PodSource(f"{plain.url}/pods"), pause=0.01)
    known(pods, UID, SHOP)
    new = pod()
    new["status"]["containerStatuses"][0]["containerID"] = "containerd://" + "9" * 64
    plain.content = json.dumps(pod_list(new)).encode()
    wait_until(lambda: "9" * 64 in known(pods, UID, "9" * 64).containers)
    pods.close()


def test_a_pod_that_stays_unknown_is_not_asked_for_for_ever(plain: Server) -> None:
    pods = Pods(PodSource(f"{plain.url}/pods"), pause=0.001)
    wait_until(lambda: pods.find("no-such-pod", "") or plain.paths)
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        assert pods.find("no-such-pod", "") is None
        time.sleep(0.001)
    assert len(plain.paths) <= 5
    pods.close()


def test_requests_are_apart_however_many_pods_show_up(plain: Server) -> None:
    pods = Pods(PodSource(f"{plain.url}/pods"), pause=60)
    for i in range(5000):
        pods.find(f"pod-{i}", "")
    known(pods, UID)
    assert len(plain.paths) == 1
    assert len(pods._missing) <= 1024
    pods.close()


def test_a_server_that_fails_is_asked_again_more_slowly_and_counted(plain: Server) -> None:
    failed = metrics.KUBERNETES_REQUESTS.labels("failed")._value
    before, plain.status = failed.get(), 503
    pods = Pods(PodSource(f"{plain.url}/pods"), pause=0.01)
    wait_until(lambda: pods.find(UID, SHOP) or failed.get() >= before + 2)
    assert pods.find(UID, SHOP) is None
    plain.status = 200
    assert known(pods, UID, SHOP).name == "shop-7d4f9c6b8d-x2x5k"
    pods.close()


def test_the_token_goes_to_a_kubelet_whose_certificate_is_trusted(
    tls: Server, plain: Server, certificate: Path, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    assert UID in fetch(kubelet(tls.url, token, certificate, True))
    assert (tls.paths, tls.tokens) == (["/pods"], ["Bearer secret"])
    with pytest.raises(KubernetesError, match="CERTIFICATE_VERIFY_FAILED"):
        fetch(kubelet(tls.url, token, None, True))
    assert UID in fetch(kubelet(tls.url, token, None, False))
    assert UID in fetch(kubelet(plain.url, token, None, True))
    assert plain.tokens == [None], "a token is not for everybody to read"


def test_the_api_server_is_asked_for_the_pods_of_this_node(
    tls: Server, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert UID in fetch(api_server(tls.url, "node-1", None, certificate, True))
    asked = urlsplit(tls.paths[0])
    assert asked.path == "/api/v1/pods"
    assert parse_qs(asked.query) == {"fieldSelector": ["spec.nodeName=node-1"], "resourceVersion": ["0"]}
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(KubernetesError, match="set the API server's URL"):
        api_server("", "node-1", None, None, True)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    assert api_server("", "node-1", None, None, True).url.startswith("https://[fd00::1]:443/api/v1/pods?")


def test_answers_that_cannot_be_used_are_errors_that_say_why(plain: Server, tmp_path: Path, monkeypatch: Any) -> None:
    source = PodSource(f"{plain.url}/pods", timeout=PATIENCE_S)
    for content, message in (
        (b"", "Expecting value"),
        (b'{"kind": "Status", "message": "no"}', "no PodList"),
        (b"[" * 100_000, "recursion"),
        (b"\xff", "decode"),
        (b'{"kind": "PodList", "items": 7}', "no PodList"),
    ):
        plain.content = content
        with pytest.raises(KubernetesError, match=message):
            fetch(source)
    monkeypatch.setattr("collector.labels.kubernetes._MAX_BYTES", 1000)
    plain.content = b" " * 2000
    with pytest.raises(KubernetesError, match="larger than 1000 bytes"):
        fetch(source)
    plain.status, plain.headers = 302, {"Location": "http://127.0.0.1:1/elsewhere"}
    with pytest.raises(KubernetesError, match="answers 302"):
        fetch(source)
    plain.status, plain.headers = 401, {}
    with pytest.raises(KubernetesError, match="answers 401 Unauthorized"):
        fetch(source)
    for url in ("http://127.0.0.1:1/pods", "nonsense", "https://", f"https{plain.url[4:]}/pods"):
        with pytest.raises(KubernetesError):
            fetch(PodSource(url, timeout=0.5))
    with pytest.raises(KubernetesError, match="absent"):
        fetch(PodSource("https://127.0.0.1:1", tmp_path / "absent", timeout=0.5))


def test_static_pods_are_known_by_the_hash_of_their_configuration_too() -> None:
    static = pod(annotations={"kubernetes.io/config.hash": STATIC, "kubernetes.io/config.mirror": STATIC})
    pods = parse(pod_list(static))
    assert pods[STATIC] is pods[UID]


def test_pods_that_are_none_are_left_out() -> None:
    broken: list[Any] = [None, 7, {}, {"metadata": {}}, {"metadata": {"uid": "u"}}, pod(labels=[1])]
    assert list(parse(pod_list(*broken, pod()))) == [UID]
    many = [pod(str(i)) for i in range(3000)]
    assert len(parse(pod_list(*many))) == 2000
    assert parse({"kind": "PodList", "items": None}) == {}


@pytest.mark.slow
@given(st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)))
def test_any_answer_is_taken_or_refused(answer: Any) -> None:
    for asked in (
        answer,
        pod_list(answer),
        pod_list({"metadata": answer, "status": answer}),
        pod_list(pod(labels=answer)),
    ):
        with contextlib.suppress(KubernetesError):
            assert isinstance(parse(asked), dict)


@pytest.mark.parametrize(
    ("kind", "owner", "workload"),
    [
        ("ReplicaSet", "shop-7d4f9c6b8d", "shop"),
        ("StatefulSet", "kafka", "kafka"),
        ("Job", "report-29384", "report-29384"),
    ],
)
def test_a_pod_has_the_workload_that_made_it(kind: str, owner: str, workload: str) -> None:
    owners = [{"kind": "Other", "name": "no-controller"}, {"kind": kind, "name": owner, "controller": True}]
    assert parse(pod_list(pod(ownerReferences=owners)))[UID].workload == workload
    assert parse(pod_list(pod()))[UID].workload == ""


def test_names_with_control_characters_are_made_harmless() -> None:
    found = parse(pod_list(pod(name="a\x1b[2J", namespace="n" * 1000)))[UID]
    assert found.name == "a?[2J"
    assert len(found.namespace) == 200
