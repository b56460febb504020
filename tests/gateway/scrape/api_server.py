"""A Kubernetes API server as far as listing and watching go, and objects as it has them."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.gateway.scrape.servers import Request, Served, serving

Object = dict[str, Any]
Answer = Callable[[Request], None]


class ApiServer:
    """`instead` answers requests of these kinds: list or watch."""

    def __init__(self) -> None:
        self.instead: dict[str, Answer] = {}
        self.asked: list[str] = []
        self._objects: dict[tuple[str, str, str], Object] = {}
        self._events: list[tuple[str, str, Object]] = []
        self._changed = threading.Condition()
        self._stopped = False

    def put(self, kind: str, one: Object) -> None:
        meta = one["metadata"]
        key = (kind, meta.get("namespace", ""), meta["name"])
        self._change("MODIFIED" if key in self._objects else "ADDED", key, one)

    def delete(self, kind: str, name: str, namespace: str = "shop") -> None:
        key = (kind, namespace, name)
        self._change("DELETED", key, self._objects[key])

    def say(self, kind: str, event: str, one: Object) -> None:
        """Sends an event to those who watch a kind."""
        with self._changed:
            self._events.append((kind, event, one))
            self._changed.notify_all()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _change(self, event: str, key: tuple[str, str, str], one: Object) -> None:
        with self._changed:
            one = {**one, "metadata": {**one["metadata"], "resourceVersion": str(len(self._events) + 1)}}
            self._objects[key] = one
            if event == "DELETED":
                del self._objects[key]
            self._events.append((key[0], event, one))
            self._changed.notify_all()

    def answer(self, request: Request) -> None:
        self.asked.append(request.path)
        url = urlsplit(request.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        way = "watch" if query.get("watch") == "1" else "list"
        if instead := self.instead.get(way):
            instead(request)
        elif way == "watch":
            self._watch(request, url.path.rpartition("/")[2], int(query["resourceVersion"]))
        else:
            self._list(request, url.path, int(query["limit"]), int(query.get("continue", 0)))

    def _list(self, request: Request, path: str, limit: int, start: int) -> None:
        *_, before, namespace, kind = path.split("/")
        with self._changed:
            found = [
                one
                for (known, of, _), one in sorted(self._objects.items())
                if known == kind and (before != "namespaces" or of == namespace)
            ]
            version = str(len(self._events))
        more = {"continue": str(start + limit)} if len(found) > start + limit else {}
        items = found[start : start + limit] or None
        body = {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version, **more}, "items": items}
        request.answer(json.dumps(body).encode(), Content_Type="application/json")

    def _watch(self, request: Request, kind: str, version: int) -> None:
        request.answer(Content_Type="application/json")
        while True:
            with self._changed:
                while not self._stopped and len(self._events) <= version:
                    self._changed.wait()
                if self._stopped:
                    return
                of, event, one = self._events[version]
            version += 1
            if of == kind:
                request.wfile.write(json.dumps({"type": event, "object": one}).encode() + b"\n")
                request.wfile.flush()


@contextmanager
def api_server(**more: Any) -> Iterator[tuple[ApiServer, Served]]:
    server = ApiServer()
    with serving(server.answer, **more) as served:
        yield server, served
        server.stop()


def status(code: int, message: str) -> Object:
    """What the server says instead of an object."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "code": code}


def pod(name: str, ip: str = "10.1.0.7", phase: str = "Running", **annotations: str) -> Object:
    return {
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": "22a5a8be",
            "labels": {"app.kubernetes.io/name": "checkout", "app": "checkout-app"},
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "x" * 5000, **annotations},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "checkout-5d8", "controller": True}
            ],
        },
        "spec": {
            "nodeName": "node-1",
            "initContainers": [{"name": "init", "image": "init:1"}],
            "containers": [
                {
                    "name": "app",
                    "image": "shop:1",
                    "ports": [
                        {"name": "http", "containerPort": 8080, "protocol": "TCP"},
                        {"name": "pprof", "containerPort": 6060, "protocol": "TCP"},
                    ],
                },
                {"name": "proxy", "image": "proxy:1"},
            ],
        },
        "status": {
            "phase": phase,
            "conditions": [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "True"}],
            "hostIP": "192.168.0.1",
            "podIP": ip,
            "containerStatuses": [{"name": "app", "containerID": "containerd://7c"}],
        },
    }


ENDPOINTS: Object = {
    "metadata": {"name": "checkout", "namespace": "shop", "labels": {"team": "pay"}},
    "subsets": [
        {
            "addresses": [
                {"ip": "10.1.0.7", "nodeName": "node-1", "targetRef": {"kind": "Pod", "name": "a", "namespace": "shop"}}
            ],
            "notReadyAddresses": [{"ip": "10.1.0.8"}],
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        }
    ],
}
SERVICE: Object = {
    "metadata": {"name": "checkout", "namespace": "shop", "annotations": {"prometheus.io/scrape": "true"}},
    "spec": {"type": "ClusterIP"},
}
NODE: Object = {
    "metadata": {"name": "node-1", "labels": {"kubernetes.io/arch": "arm64"}},
    "spec": {"providerID": "kind://node-1"},
    "status": {
        "addresses": [{"type": "Hostname", "address": "node-1"}, {"type": "InternalIP", "address": "fd00::1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
    },
}
