"""The fields of kubernetes_sd_configs, with Prometheus's names."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from gateway.scrape.fields import ConfigFields
from gateway.scrape.http_fields import take_http
from gateway.scrape.job import ApiServer, Http, KubernetesSource
from gateway.scrape.kubernetes.kubeconfig import SERVER, load_kubeconfig
from icestream.files.yaml_file import shown
from icestream.settings import SettingError

ROLES = {
    "pod": {"pod": "pods"},
    "endpoints": {"endpoints": "endpoints", "service": "services", "pod": "pods"},
    "node": {"node": "nodes"},
}
"""The kinds of objects that the targets of each role are made of: their names in selectors, and in paths of the API."""

_SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def take_kubernetes(fields: ConfigFields) -> KubernetesSource:
    """Raises SettingError."""
    role = fields.text("role")
    if role not in ROLES:
        raise SettingError(f"{fields.where}: role: expected {', '.join(ROLES)}, got {shown(role)}")
    source = KubernetesSource(
        role, _server(fields), _namespaces(fields.group("namespaces"), role), _selectors(fields, ROLES[role])
    )
    fields.end()
    return source


def _server(fields: ConfigFields) -> ApiServer:
    url, kubeconfig, http = fields.text("api_server"), fields.text("kubeconfig_file"), take_http(fields)
    if url and not SERVER.fullmatch(url):
        raise SettingError(f"{fields.where}: api_server: expected http(s)://HOST:PORT, got {shown(url)}")
    if http != Http() and not url:
        raise SettingError(f"{fields.where}: expected an api_server, as there is how to ask it")
    if url and kubeconfig:
        raise SettingError(f"{fields.where}: expected one of api_server and kubeconfig_file, got both")
    if kubeconfig:
        return load_kubeconfig(Path(kubeconfig))
    return ApiServer(url.rstrip("/"), http) if url else _in_cluster(fields.where)


def _in_cluster(where: str) -> ApiServer:
    """Returns the server that Kubernetes tells every pod."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise SettingError(f"{where}: expected api_server or kubeconfig_file, as this is no pod of Kubernetes")
    http = Http(credentials_file=f"{_SERVICE_ACCOUNT}/token", ca_file=f"{_SERVICE_ACCOUNT}/ca.crt")
    return ApiServer(f"https://{f'[{host}]' if ':' in host else host}:{port}", http)


def _namespaces(fields: ConfigFields, role: str) -> tuple[str, ...]:
    own = fields.flag("own_namespace", False)
    names = fields.texts("names") if fields.has("names") else []
    fields.end()
    if own:
        try:
            names.append(Path(f"{_SERVICE_ACCOUNT}/namespace").read_text(encoding="utf-8").strip())
        except OSError as error:
            raise SettingError(f"{fields.where}: own_namespace: {error}") from None
    if wrong := [name for name in names if not _NAMESPACE.fullmatch(name)]:
        raise SettingError(f"{fields.where}: expected the name of a namespace, got {shown(wrong[0])}")
    if names and role == "node":
        raise SettingError(f"{fields.where}: nodes are in no namespace")
    return tuple(dict.fromkeys(names))


def _selectors(fields: ConfigFields, kinds: Mapping[str, str]) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    """Returns parameters of the API for kinds of objects."""
    found: dict[str, tuple[tuple[str, str], ...]] = {}
    for one in fields.groups("selectors"):
        kind, label, field = one.text("role"), one.text("label"), one.text("field")
        one.end()
        if kind not in kinds or kinds[kind] in found:
            raise SettingError(f"{one.where}: role: expected one of {', '.join(kinds)}, each once, got {shown(kind)}")
        given = (("labelSelector", label), ("fieldSelector", field))
        found[kinds[kind]] = tuple((name, value) for name, value in given if value)
    return tuple(found.items())
