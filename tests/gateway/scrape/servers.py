"""Servers of HTTP and HTTPS for tests, and certificates for them."""

import http.client
import http.server
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_KEY = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"


@dataclass(frozen=True)
class Certificates:
    """Files of PEM: two authorities, and certificates that the first one signed."""

    folder: Path

    def __post_init__(self) -> None:
        for name in ("ca", "other-ca"):
            self._openssl(f"req -x509 {_KEY} -subj /CN={name} -keyout {name}.key -out {name}.pem")
        for name, alternative in (("server", "IP:127.0.0.1"), ("named", "DNS:shop.internal"), ("client", "DNS:client")):
            self._openssl(
                f"req -x509 {_KEY} -subj /CN={name} -addext subjectAltName={alternative} -CA ca.pem -CAkey ca.key "
                f"-addext basicConstraints=critical,CA:FALSE -keyout {name}.key -out {name}.pem"
            )

    def file(self, name: str) -> str:
        return str(self.folder / name)

    def context(self, name: str = "server", client: ssl.VerifyMode = ssl.CERT_NONE) -> ssl.SSLContext:
        """`client`: whether clients need a certificate of the first authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.file(f"{name}.pem"), self.file(f"{name}.key"))
        context.verify_mode = client
        context.load_verify_locations(self.file("ca.pem"))
        return context

    def _openssl(self, command: str) -> None:
        subprocess.run(["openssl", *command.split()], cwd=self.folder, check=True, capture_output=True)


class Request(http.server.BaseHTTPRequestHandler):
    """What came, and how to answer it."""

    def answer(self, body: bytes = b"", status: int = 200, **headers: object) -> None:
        """Header names have _ for -."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@dataclass
class Served:
    """A server that runs: what came, in order."""

    port: int = 0
    scheme: str = "http"
    authorizations: list[str | None] = field(default_factory=list)
    client_names: list[str | None] = field(default_factory=list)
    """Common names of the clients' certificates."""
    headers: list[http.client.HTTPMessage] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.address}"


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients go away."""


@contextmanager
def serving(answer: Callable[[Request], None], context: ssl.SSLContext | None = None) -> Iterator[Served]:
    """Serves on a free port of the loopback; `answer` is called for each GET."""
    served = Served(scheme="https" if context else "http")

    class Handler(Request):
        def do_GET(self) -> None:
            served.authorizations.append(self.headers["Authorization"])
            served.headers.append(self.headers)
            if isinstance(self.connection, ssl.SSLSocket):
                subject = (self.connection.getpeercert() or {}).get("subject", ())
                served.client_names.append(next((value for ((_, value),) in subject), None))
            answer(self)

    with _Server(("127.0.0.1", 0), Handler) as server:
        served.port = server.server_port
        if context:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield served
        server.shutdown()
        thread.join()
