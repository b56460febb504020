"""Requests the pods of this node from the kubelet (`/pods`) or the API server (pods whose spec.nodeName is this node).

A request is sent only when a process appears in an unknown pod or container, and at most every few seconds. A separate
thread sends it, so nothing waits for the answer. A pod that stays unknown is requested five times.
"""

import contextlib
import http.client
import json
import logging
import os
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collector import metrics
from collector.labels.text import clean

log = logging.getLogger(__name__)

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
MAX_PODS = 2000
_MAX_BYTES = 16 << 20
_MAX_LABELS = 64
_MAX_MISSING = 1024
_TRIES = 5
_APP_LABELS = ("app.kubernetes.io/name", "app", "k8s-app")


class KubernetesError(Exception):
    """The pods cannot be requested; the message says why."""


@dataclass(frozen=True)
class Pod:
    uid: str
    name: str
    namespace: str
    node: str
    workload: str  # the Deployment, StatefulSet, DaemonSet or Job that made it, or ""
    app: str  # what its labels call the application, or ""
    labels: dict[str, str]
    containers: dict[str, tuple[str, str]]  # container ID -> name, runtime


@dataclass(frozen=True)
class PodSource:
    """Where pods are requested."""

    url: str  # of a PodList
    token_file: Path | None = None  # read for each request, as Kubernetes renews it; sent by https only
    ca_file: Path | None = None  # by default the system's
    verify: bool = True
    timeout: float = 5.0


def kubelet(url: str, token_file: Path | None, ca_file: Path | None, verify: bool) -> PodSource:
    """The source at a kubelet. `url` is its address, by default on this host's loopback."""
    url = url or "https://127.0.0.1:10250"
    return PodSource(f"{url.rstrip('/')}/pods", token_file or _own("token"), ca_file or _own("ca.crt"), verify)


def api_server(url: str, node: str, token_file: Path | None, ca_file: Path | None, verify: bool) -> PodSource:
    """The source at an API server. `url` is its address, by default the one that Kubernetes gives to pods. Raises
    KubernetesError."""
    if not url:
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host:
            raise KubernetesError(
                "this process runs in no pod (KUBERNETES_SERVICE_HOST is not set): set the API server's URL"
            )
        url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    # resourceVersion 0: from the API server's memory, without a read of etcd.
    query = urllib.parse.urlencode({"fieldSelector": f"spec.nodeName={node}", "resourceVersion": "0"})
    return PodSource(
        f"{url.rstrip('/')}/api/v1/pods?{query}", token_file or _own("token"), ca_file or _own("ca.crt"), verify
    )


def _own(name: str) -> Path | None:
    """A file of the service account that this pod runs as."""
    path = SERVICE_ACCOUNT / name
    return path if path.exists() else None


@dataclass
class _Missing:
    tries: int = 0
    due: float = 0.0


@dataclass
class Pods:
    """The known pods of this node. `pause` is the time between two requests in seconds; after a failure it doubles, up
    to a minute."""

    source: PodSource
    pause: float = 5.0
    _pods: dict[str, Pod] = field(default_factory=dict)  # by UID; of a static pod also by the hash of its configuration
    _missing: dict[tuple[str, str], _Missing] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _wanted: threading.Event = field(default_factory=threading.Event)
    _closed: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def find(self, pod_uid: str, container_id: str) -> Pod | None:
        """The pod, from memory. If the pod or its container is not known, requests the pods."""
        pod = self._pods.get(pod_uid)
        if pod is None or (container_id and container_id not in pod.containers):
            self._miss((pod_uid, container_id))
        return pod

    def close(self) -> None:
        """Sends no more requests."""
        self._closed.set()
        self._wanted.set()
        if self._thread is not None:
            self._thread.join(2 * self.source.timeout)

    def _miss(self, key: tuple[str, str]) -> None:
        with self._lock:
            if len(self._missing) >= _MAX_MISSING and key not in self._missing:
                del self._missing[next(iter(self._missing))]
            missing = self._missing.setdefault(key, _Missing())
            if missing.tries >= _TRIES or time.monotonic() < missing.due:
                return
            missing.tries += 1
            missing.due = time.monotonic() + self.pause * 2**missing.tries
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="pods", daemon=True)
                self._thread.start()
        self._wanted.set()

    def _run(self) -> None:
        pause = self.pause
        while True:
            self._wanted.wait()
            if self._closed.is_set():
                return
            self._wanted.clear()
            try:
                self._pods = fetch(self.source)
                metrics.KUBERNETES_REQUESTS.labels("ok").inc()
                pause = self.pause
            except KubernetesError as error:
                metrics.KUBERNETES_REQUESTS.labels("failed").inc()
                log.log(
                    logging.WARNING if pause == self.pause else logging.DEBUG,
                    "the pods of this node cannot be requested: %s",
                    error,
                )
                pause = min(2 * pause, max(60.0, self.pause))
                self._try_again()
            if self._closed.wait(pause):
                return

    def _try_again(self) -> None:
        """After a failed request, its pods count as not requested."""
        with self._lock:
            self._missing.clear()


def fetch(source: PodSource) -> dict[str, Pod]:
    """All pods, by UID. Raises KubernetesError."""
    try:
        with _opener(source).open(_request(source), timeout=source.timeout) as response:
            content = _read(response, time.monotonic() + 4 * source.timeout)
        return parse(json.loads(content))
    except urllib.error.HTTPError as error:
        error.close()
        raise KubernetesError(f"{source.url} answers {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:  # or no URL, no JSON
        raise KubernetesError(f"{source.url}: {error}") from None


def _request(source: PodSource) -> urllib.request.Request:
    headers = {"Accept": "application/json"}
    if source.token_file and source.url.startswith("https://"):
        headers["Authorization"] = f"Bearer {source.token_file.read_text(encoding='ascii').strip()}"
    return urllib.request.Request(source.url, headers=headers)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirects: a token is only for the server in the settings."""

    def redirect_request(self, *args: Any, **named: Any) -> None:
        return None


def _opener(source: PodSource) -> urllib.request.OpenerDirector:
    """Ignores the proxies in the environment: the kubelet is on this host, the API server in this cluster."""
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({}), _NoRedirect()]
    if source.url.startswith("https://"):
        context = ssl.create_default_context(cafile=str(source.ca_file) if source.ca_file else None)
        if not source.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        handlers.append(urllib.request.HTTPSHandler(context=context))
    return urllib.request.build_opener(*handlers)


def _read(response: Any, until: float) -> bytes:
    """Reads the answer. Raises ValueError if it is too large or takes too long."""
    content = bytearray()
    while chunk := response.read1(1 << 16):
        content += chunk
        if len(content) > _MAX_BYTES:
            raise ValueError(f"the answer is larger than {_MAX_BYTES} bytes")
        if time.monotonic() > until:
            raise ValueError("the answer takes too long")
    return bytes(content)


def parse(answer: Any) -> dict[str, Pod]:
    """Returns the pods of a PodList by UID. Leaves out malformed pods. Raises KubernetesError if it is no PodList."""
    items = answer.get("items") if isinstance(answer, dict) else None
    if (
        not isinstance(answer, dict)
        or answer.get("kind") not in ("PodList", "List")
        or not isinstance(items, list | None)
    ):
        raise KubernetesError("the answer is no PodList")
    pods: dict[str, Pod] = {}
    for item in (items or [])[:MAX_PODS]:
        with contextlib.suppress(KeyError, TypeError, AttributeError):
            pod = _pod(item)
            pods[pod.uid] = pod
            hash_of_static = (item["metadata"].get("annotations") or {}).get("kubernetes.io/config.hash")
            if isinstance(hash_of_static, str):
                pods[hash_of_static] = pod
    return pods


def _pod(item: dict[str, Any]) -> Pod:
    metadata, status = item["metadata"], item.get("status") or {}
    labels = {
        clean(str(name)): clean(str(value))
        for name, value in list((metadata.get("labels") or {}).items())[:_MAX_LABELS]
    }
    return Pod(
        uid=str(metadata["uid"]),
        name=clean(str(metadata["name"])),
        namespace=clean(str(metadata["namespace"])),
        node=clean(str((item.get("spec") or {}).get("nodeName") or "")),
        workload=clean(_workload(metadata.get("ownerReferences") or [], labels.get("pod-template-hash", ""))),
        app=next((labels[name] for name in _APP_LABELS if labels.get(name)), ""),
        labels=labels,
        containers=dict(_containers(status)),
    )


def _workload(owners: list[dict[str, Any]], template_hash: str) -> str:
    """What made the pod. A Deployment makes it by a ReplicaSet, whose name is the Deployment's and a hash."""
    name = next((str(owner["name"]) for owner in owners if owner.get("controller")), "")
    return name.removesuffix(f"-{template_hash}") if template_hash else name


def _containers(status: dict[str, Any]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yields ID, name and runtime of containers of all kinds, also of those that have ended. IDs are RUNTIME://ID."""
    for kind in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        for container in status.get(kind) or ():
            ended = (container.get("lastState") or {}).get("terminated") or {}
            for identifier in (ended.get("containerID"), container.get("containerID")):
                runtime, _, container_id = str(identifier or "").partition("://")
                if container_id:
                    yield container_id, (clean(str(container["name"])), clean(runtime))
