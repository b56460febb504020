"""Reads how kubectl reaches its cluster.

The format: https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/"""

import base64
import binascii
import os
import re
from pathlib import Path

from gateway.scrape.fields import ConfigFields
from gateway.scrape.job import ApiServer, Http
from icestream.files.yaml_file import load_yaml, shown
from icestream.settings import SettingError

SERVER = re.compile(r"https?://[^\s/@?#]+(?:/[^\s?#]*)?")


def load_kubeconfig(path: Path) -> ApiServer:
    """Returns the server of the current context. Raises SettingError."""
    file = ConfigFields(load_yaml(path, "a kubeconfig"), str(path))
    current = file.text("current-context")
    if not current:
        raise SettingError(f"{path}: expected a current-context")
    context = _named(file, "contexts", "context", current)
    cluster = _named(file, "clusters", "cluster", context.text("cluster"))
    user_name = context.text("user")
    user = _named(file, "users", "user", user_name) if user_name else ConfigFields({}, str(path))
    for name in ("exec", "auth-provider"):
        if user.has(name):
            raise SettingError(
                f"{user.where}: icestream runs no program for credentials ({name}): make a kubeconfig with the token "
                "of a service account"
            )
    url = cluster.text("server")
    if not SERVER.fullmatch(url):
        raise SettingError(f"{cluster.where}: server: expected http(s)://HOST:PORT, got {shown(url)}")
    http = Http(
        proxy=cluster.text("proxy-url"),
        credentials="" if user.has("tokenFile") else user.text("token"),
        credentials_file=_path(path, user.text("tokenFile")),
        username=user.text("username"),
        password=user.text("password"),
        ca_file=_file(path, cluster, "certificate-authority"),
        cert_file=_file(path, user, "client-certificate"),
        key_file=_file(path, user, "client-key"),
        verify=not cluster.flag("insecure-skip-tls-verify", False),
        server_name=cluster.text("tls-server-name"),
    )
    return ApiServer(url.rstrip("/"), http)


def _named(file: ConfigFields, kind: str, field: str, name: str) -> ConfigFields:
    """Returns what the first entry with this name has."""
    groups = file.groups(kind)
    for one in groups:
        if one.text("name") == name:
            return one.group(field)
    raise SettingError(f"{file.where}: {kind}: there is none with the name {shown(name)}")


def _file(kubeconfig: Path, fields: ConfigFields, name: str) -> str:
    """Returns the path of a file, which is in memory where the kubeconfig itself has the content."""
    data, path = fields.text(f"{name}-data"), fields.text(name)
    if not data:
        return _path(kubeconfig, path)
    try:
        content = base64.b64decode(data, validate=True)
    except binascii.Error:
        raise SettingError(f"{fields.where}: {name}-data: expected base64") from None
    # OpenSSL reads files only, and a key belongs on no disk. It stays open as long as the process.
    in_memory = os.memfd_create(name)
    os.write(in_memory, content)
    return f"/proc/{os.getpid()}/fd/{in_memory}"


def _path(kubeconfig: Path, path: str) -> str:
    return str(kubeconfig.parent / path) if path else ""
