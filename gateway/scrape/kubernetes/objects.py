"""Makes objects of the Kubernetes API into labels of targets, with Prometheus's names. They raise one of
AttributeError, KeyError, TypeError and ValueError for what is no such object."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gateway.scrape.target_groups import MAX_TARGETS, is_address

_META = "__meta_kubernetes"
_LONGEST_VALUE = 1000
"""Labels and annotations that are longer are left out: tools keep whole objects in annotations."""
_NO_LABEL = re.compile(r"[^a-zA-Z0-9_]")
_ENDED = ("Succeeded", "Failed")
"""Phases of pods whose address another pod may have by now."""
_NODE_ADDRESSES = ("InternalIP", "InternalDNS", "ExternalIP", "ExternalDNS", "LegacyHostIP", "Hostname")
"""The types of addresses of nodes, the preferred first."""

Labels = dict[str, str]


@dataclass(frozen=True)
class Port:
    """A port of a container, or a container without ports: 0."""

    number: int
    labels: Labels


@dataclass(frozen=True)
class PodPorts:
    """`address` is empty until it has one, and after it has ended."""

    address: str
    labels: Labels
    ports: tuple[Port, ...]


@dataclass(frozen=True)
class Endpoint:
    """One address and port of a service."""

    address: str
    port: int
    pod: str
    """The name of the pod whose address it is, or nothing."""
    labels: Labels


@dataclass(frozen=True)
class Endpoints:
    labels: Labels
    endpoints: tuple[Endpoint, ...]


@dataclass(frozen=True)
class Node:
    address: str
    labels: Labels


def to_pod(pod: dict[str, Any]) -> PodPorts:
    meta, spec, status = pod["metadata"], _part(pod, "spec"), _part(pod, "status")
    ready = next((one["status"] for one in _parts(status, "conditions") if one["type"] == "Ready"), "unknown")
    owner: dict[str, Any] = next((one for one in _parts(meta, "ownerReferences") if one.get("controller")), {})
    labels = _labels(
        namespace=meta.get("namespace"),
        pod_name=meta.get("name"),
        pod_uid=meta.get("uid"),
        pod_ip=status.get("podIP"),
        pod_host_ip=status.get("hostIP"),
        pod_phase=status.get("phase"),
        pod_ready=str(ready).lower(),
        pod_node_name=spec.get("nodeName"),
        pod_controller_kind=owner.get("kind"),
        pod_controller_name=owner.get("name"),
    )
    ids = {
        one["name"]: one.get("containerID")
        for kind in ("containerStatuses", "initContainerStatuses")
        for one in _parts(status, kind)
    }
    ports = [
        port
        for kind in ("containers", "initContainers")
        for one in _parts(spec, kind)
        for port in _ports(one, ids.get(one["name"]), kind == "initContainers")
    ]
    has_address = status.get("podIP") and status.get("phase") not in _ENDED
    return PodPorts(_address(status["podIP"]) if has_address else "", labels | _named(meta, "pod"), tuple(ports))


def _ports(container: dict[str, Any], container_id: Any, init: bool) -> Iterator[Port]:
    common = _labels(
        pod_container_name=container["name"],
        pod_container_image=container.get("image"),
        pod_container_id=container_id,
        pod_container_init=str(init).lower(),
    )
    ports = _parts(container, "ports")
    for port in ports:
        number = _number(port["containerPort"])
        own = _labels(
            pod_container_port_number=number,
            pod_container_port_name=port.get("name"),
            pod_container_port_protocol=port.get("protocol"),
        )
        yield Port(number, common | own)
    if not ports:
        yield Port(0, common)


def to_endpoints(endpoints: dict[str, Any]) -> Endpoints:
    meta, subsets = endpoints["metadata"], _parts(endpoints, "subsets")
    common = _labels(namespace=meta.get("namespace"), endpoints_name=meta.get("name")) | _named(meta, "endpoints")
    if sum(len(_addresses(one)) * len(_parts(one, "ports")) for one in subsets) > MAX_TARGETS:
        raise ValueError(f"more than {MAX_TARGETS} endpoints")
    return Endpoints(
        common,
        tuple(
            _endpoint(address, ready, port)
            for one in subsets
            for address, ready in _addresses(one)
            for port in _parts(one, "ports")
        ),
    )


def _addresses(subset: dict[str, Any]) -> list[tuple[dict[str, Any], bool]]:
    """Returns each address, and whether it is ready."""
    return [
        (one, ready)
        for kind, ready in (("addresses", True), ("notReadyAddresses", False))
        for one in _parts(subset, kind)
    ]


def _endpoint(address: dict[str, Any], ready: bool, port: dict[str, Any]) -> Endpoint:
    target, number = _part(address, "targetRef"), _number(port["port"])
    labels = _labels(
        endpoint_ready=str(ready).lower(),
        endpoint_port_name=port.get("name"),
        endpoint_port_protocol=port.get("protocol"),
        endpoint_hostname=address.get("hostname"),
        endpoint_node_name=address.get("nodeName"),
        endpoint_address_target_kind=target.get("kind"),
        endpoint_address_target_name=target.get("name"),
    )
    pod = str(target.get("name") or "") if target.get("kind") == "Pod" else ""
    return Endpoint(_address(address["ip"]), number, pod, labels)


def to_service_labels(service: dict[str, Any]) -> Labels:
    meta = service["metadata"]
    return _labels(service_name=meta.get("name")) | _named(meta, "service")


def to_node(node: dict[str, Any]) -> Node:
    meta, status = node["metadata"], _part(node, "status")
    addresses: dict[str, str] = {}
    for one in _parts(status, "addresses"):
        addresses.setdefault(one["type"], one["address"])
    preferred = next((addresses[kind] for kind in _NODE_ADDRESSES if kind in addresses), None)
    if preferred is None:
        raise ValueError("a node without an address")
    port = _number(_part(_part(status, "daemonEndpoints"), "kubeletEndpoint")["Port"])
    labels = _labels(
        node_name=meta.get("name"),
        node_provider_id=_part(node, "spec").get("providerID"),
        **{f"node_address_{kind}": address for kind, address in addresses.items()},
    )
    own = {"instance": str(meta.get("name"))}
    return Node(with_port(_address(preferred), port), labels | _named(meta, "node") | own)


def with_port(host: str, port: int) -> str:
    """Returns an address that targets have; the port 0 is none."""
    return f"{host}:{port}" if port else host


def _address(host: Any) -> str:
    text = f"[{host}]" if ":" in host else host
    if not is_address(with_port(text, 1)):
        raise ValueError(f"expected an address, got {host!r:.60}")
    return text


def _number(port: Any) -> int:
    if not isinstance(port, int) or not 0 < port < 2**16:
        raise ValueError(f"expected a port, got {port!r:.60}")
    return port


def _labels(**values: Any) -> Labels:
    return {f"{_META}_{name}": str(value)[:_LONGEST_VALUE] for name, value in values.items() if value}


def _named(meta: dict[str, Any], kind: str) -> Labels:
    """Returns the labels and annotations of an object."""
    labels: Labels = {}
    for field in ("label", "annotation"):
        for name, value in _part(meta, f"{field}s").items():
            if len(value) <= _LONGEST_VALUE:
                safe = _NO_LABEL.sub("_", name)
                labels[f"{_META}_{kind}_{field}_{safe}"] = value
                labels[f"{_META}_{kind}_{field}present_{safe}"] = "true"
    return labels


def _part(of: dict[str, Any], name: str) -> dict[str, Any]:
    part = of.get(name) or {}
    if not isinstance(part, dict):
        raise TypeError(f"{name}: expected an object")
    return part


def _parts(of: dict[str, Any], name: str) -> list[dict[str, Any]]:
    parts = of.get(name) or []
    if not isinstance(parts, list) or not all(isinstance(one, dict) for one in parts):
        raise TypeError(f"{name}: expected a list of objects")
    return parts
