"""TLS of the gateway's servers. Each new connection gets what the files say then: certificates can be replaced."""

import logging
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path

import grpc

from gateway.settings import GatewaySettings
from icestream.settings import SettingError, UnreadableFile

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Files:
    """What the files say: PEM."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None


@dataclass(frozen=True)
class _Loaded:
    files: _Files
    context: ssl.SSLContext


class Tls:
    """The certificate and its key, and whom clients must have theirs of. For any thread."""

    def __init__(self, settings: GatewaySettings) -> None:
        """Raises SettingError, which names the file that cannot be used; UnreadableFile if it may be there later."""
        self._settings = settings
        self._loading = threading.Lock()
        self._problem = ""
        files = self._read()
        self._loaded = _Loaded(files, self._context(files))

    def http_context(self) -> ssl.SSLContext:
        """Every handshake with it uses what the files say."""
        context = self._current().context
        context.sni_callback = self._use_current
        return context

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """Every handshake with them uses what the files say. For one port."""
        given = self._current()

        def changed() -> grpc.ServerCertificateConfiguration | None:
            nonlocal given
            if (current := self._current()) is given:
                return None
            given = current
            return _configuration(given.files)

        return grpc.dynamic_ssl_server_credentials(
            _configuration(given.files), changed, require_client_authentication=given.files.client_ca is not None
        )

    def _use_current(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """OpenSSL calls it in every handshake, also if the client names no server."""
        connection.context = self._current().context

    def _current(self) -> _Loaded:
        """Returns what the files say. If they cannot be used, such as while they are being replaced, it is what they
        said before."""
        with self._loading:
            try:
                files = self._read()
                if files != self._loaded.files:
                    self._loaded = _Loaded(files, self._context(files))
                    _log.info("new connections use the changed certificate files")
                self._problem = ""
            except SettingError as error:
                if str(error) != self._problem:
                    self._problem = str(error)
                    _log.warning("%s; new connections use what the certificate files said before", error)
            return self._loaded

    def _read(self) -> _Files:
        client_ca = self._settings.gateway_tls_client_ca_file
        return _Files(
            self._read_pem("gateway_tls_cert_file", "CERTIFICATE"),
            self._read_pem("gateway_tls_key_file", "PRIVATE KEY"),
            self._read_pem("gateway_tls_client_ca_file", "CERTIFICATE") if client_ca else None,
        )

    def _read_pem(self, name: str, kind: str) -> bytes:
        file = getattr(self._settings, name)
        try:
            data = Path(file).read_bytes()
        except OSError as error:
            raise UnreadableFile(f"{name}: cannot read {file}: {error.strerror}") from None
        if not data:
            raise UnreadableFile(f"{name}: {file} is empty")
        if f"{kind}-----".encode() not in data:
            raise SettingError(f"{name}: expected PEM with a {kind}, got something else in {file}")
        return data

    def _context(self, files: _Files) -> ssl.SSLContext:
        """Reads the files again, as `ssl` takes no key from memory. If they change meanwhile, they differ from `files`
        at the next connection."""
        settings = self._settings
        certificate, key = settings.gateway_tls_cert_file, settings.gateway_tls_key_file
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(certificate, key, password=lambda: "")  # otherwise it asks the terminal for one
        except OSError as error:  # that of ssl is one
            raise SettingError(
                f"gateway_tls_key_file: expected the key of the certificate in {certificate}, without a passphrase, "
                f"got another one in {key}, or a damaged file: {error}"
            ) from None
        if files.client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            try:
                context.load_verify_locations(settings.gateway_tls_client_ca_file)
            except OSError as error:
                file = settings.gateway_tls_client_ca_file
                raise SettingError(f"gateway_tls_client_ca_file: expected certificates in {file}: {error}") from None
        return context


def tls_of(settings: GatewaySettings) -> Tls | None:
    """Returns None if the gateway is without TLS. Raises SettingError."""
    return Tls(settings) if settings.gateway_tls_cert_file else None


def _configuration(files: _Files) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(files.key, files.certificate)], files.client_ca)
