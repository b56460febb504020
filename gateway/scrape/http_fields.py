"""The fields of a scrape job, and of a server that lists targets, that say how to ask over HTTP."""

import re

from gateway.scrape.fields import ConfigFields
from gateway.scrape.job import Http, RequestHeader
from icestream.settings import SettingError

_PROXY = re.compile(r"https?://[^\s/?#]+/?")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OURS = {
    "accept-encoding", "authorization", "connection", "content-encoding", "content-length", "content-type", "host",
    "transfer-encoding", "user-agent",
}  # fmt: skip
"""Headers that have fields of their own, or are the client's."""


def take_http(fields: ConfigFields) -> Http:
    """Takes the fields. Raises SettingError."""
    basic, bearer, tls = (fields.group(name) for name in ("basic_auth", "authorization", "tls_config"))
    token = fields.text("bearer_token"), fields.text("bearer_token_file")  # older than `authorization`
    given = bearer.text("credentials"), bearer.text("credentials_file")
    proxy = fields.text("proxy_url")
    if proxy and not _PROXY.fullmatch(proxy):  # it may have a password, so it is not shown
        raise SettingError(f"{fields.where}: proxy_url: expected http(s)://HOST:PORT")
    http = Http(
        follow_redirects=fields.flag("follow_redirects", True),
        proxy=proxy,
        headers=_headers(fields.group("http_headers")),
        authorization_type=bearer.text("type", "Bearer"),
        credentials=given[0] or token[0],
        credentials_file=given[1] or token[1],
        username=basic.text("username"),
        password=basic.text("password"),
        password_file=basic.text("password_file"),
        ca_file=tls.text("ca_file"),
        cert_file=tls.text("cert_file"),
        key_file=tls.text("key_file"),
        verify=not tls.flag("insecure_skip_verify", False),
        server_name=tls.text("server_name"),
    )
    if sum(map(bool, (*given, *token, http.username))) > 1:
        raise SettingError(f"{fields.where}: expected one of basic_auth, authorization and bearer_token, got several")
    if (http.password or http.password_file) and not http.username:
        raise SettingError(f"{basic.where}: expected a username, as there is a password")
    if http.password and http.password_file:
        raise SettingError(f"{basic.where}: expected one of password and password_file, got both")
    if http.key_file and not http.cert_file:
        raise SettingError(f"{fields.where}: tls_config: expected a cert_file, as there is a key_file")
    for group in (basic, bearer, tls):
        group.end()
    return http


def _headers(given: ConfigFields) -> tuple[RequestHeader, ...]:
    headers = []
    for name in given.names():
        one = given.group(name)
        if not _HEADER.fullmatch(name) or name.lower() in _OURS:
            raise SettingError(f"{one.where}: no header that may be set here")
        for kind in ("values", "secrets", "files"):
            headers += [
                RequestHeader(name, value, kind == "files") for value in (one.texts(kind) if one.has(kind) else ())
            ]
        one.end()
    return tuple(headers)
