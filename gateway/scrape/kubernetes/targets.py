"""The targets that a Kubernetes cluster has now."""

import asyncio
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from gateway.scrape.http_client import HttpClient
from gateway.scrape.job import KubernetesSource, TargetGroup
from gateway.scrape.kubernetes.config import ROLES
from gateway.scrape.kubernetes.objects import (
    Endpoints,
    Labels,
    Node,
    PodPorts,
    to_endpoints,
    to_node,
    to_pod,
    to_service_labels,
    with_port,
)
from gateway.scrape.kubernetes.watch import Watch
from gateway.scrape.target_groups import TargetList

ObjectT = TypeVar("ObjectT")


class KubernetesTargets:
    """Follows the objects of a source, in tasks, until `close`. `changed` is called when the targets may be others."""

    def __init__(self, source: KubernetesSource, client: HttpClient, changed: Callable[[], None]) -> None:
        self._source, self._client, self._changed = source, client, changed
        self._pods = self._watches("pods", to_pod)
        self._endpoints = self._watches("endpoints", to_endpoints)
        self._services = self._watches("services", to_service_labels)
        self._nodes = self._watches("nodes", to_node)
        self._all: tuple[Watch[Any], ...] = (*self._pods, *self._endpoints, *self._services, *self._nodes)
        self._tasks = [asyncio.create_task(watch.run()) for watch in self._all]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def error(self) -> str:
        """Why the targets may be old; nothing if they are not."""
        return next((watch.error for watch in self._all if watch.error), "")

    def now(self) -> TargetList:
        invalid = frozenset(itertools.chain(*(watch.invalid.values() for watch in self._all)))
        groups: Iterable[TargetGroup]
        match self._source.role:
            case "pod":
                groups = _of_pods(_objects(self._pods).values())
            case "endpoints":
                groups = _of_endpoints(_objects(self._endpoints), _objects(self._services), _objects(self._pods))
            case _:
                groups = _of_nodes(_objects(self._nodes).values())
        return TargetList(tuple(groups), invalid)

    def _watches(self, kind: str, convert: Callable[[dict[str, Any]], ObjectT]) -> list[Watch[ObjectT]]:
        """Returns one for each namespace, or one for all."""
        source = self._source
        if kind not in ROLES[source.role].values():
            return []
        parameters = dict(source.selectors).get(kind, ())
        paths = [f"namespaces/{namespace}/{kind}" for namespace in source.namespaces] or [kind]
        urls = [f"{source.server.url}/api/v1/{path}" for path in paths]
        return [Watch(self._client, url, source.server.http, parameters, convert, self._changed) for url in urls]


def _objects(watches: list[Watch[ObjectT]]) -> dict[tuple[str, str], ObjectT]:
    return {key: one for watch in watches for key, one in watch.objects.items()}


def _of_pods(pods: Iterable[PodPorts]) -> Iterator[TargetGroup]:
    for pod in pods:
        for port in pod.ports if pod.address else ():
            yield _group(with_port(pod.address, port.number), pod.labels | port.labels)


def _of_nodes(nodes: Iterable[Node]) -> Iterator[TargetGroup]:
    for node in nodes:
        yield _group(node.address, node.labels)


def _of_endpoints(
    endpoints: dict[tuple[str, str], Endpoints],
    services: dict[tuple[str, str], Labels],
    pods: dict[tuple[str, str], PodPorts],
) -> Iterator[TargetGroup]:
    """A pod behind an endpoint tells its labels, and its other ports are targets, too, as in Prometheus."""
    for (namespace, name), one in endpoints.items():
        common = one.labels | services.get((namespace, name), {})
        taken: dict[str, set[int]] = {}  # ports of pods
        for endpoint in one.endpoints:
            labels = common | endpoint.labels
            if pod := pods.get((namespace, endpoint.pod)):
                taken.setdefault(endpoint.pod, set()).add(endpoint.port)
                port = next((port.labels for port in pod.ports if port.number == endpoint.port), {})
                labels |= pod.labels | port
            yield _group(with_port(endpoint.address, endpoint.port), labels)
        for pod_name, ports in taken.items():
            pod = pods[namespace, pod_name]
            for other in pod.ports if pod.address else ():
                if other.number and other.number not in ports:
                    yield _group(with_port(pod.address, other.number), common | pod.labels | other.labels)


def _group(address: str, labels: Labels) -> TargetGroup:
    return TargetGroup((address,), tuple(labels.items()))
