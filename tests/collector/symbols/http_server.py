"""An HTTP server on the loopback address that answers as a test tells it."""

import http.server
import threading
from collections.abc import Callable

Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


class Server:
    """Answers as it is told, and counts."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer: Answer = lambda request: request.send_error(404)
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(self.path)
                server.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()


def sending(data: bytes, length: int | None = None) -> Answer:
    def answer(request: http.server.BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", str(len(data) if length is None else length))
        request.end_headers()
        request.wfile.write(data)

    return answer
