"""A symbol store that answers only when it is told to."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.waiting import PATIENCE_S


class SlowStore(ThreadingHTTPServer):
    """An S3 that has one file, and answers when it is told to, until the end of the block."""

    daemon_threads = True

    def __init__(self, data: bytes) -> None:
        self.data, self.answers = data, threading.Event()
        super().__init__(("127.0.0.1", 0), SlowHandler)
        place = f"127.0.0.1%3A{self.server_address[1]}"
        self.uri = f"s3://key:secret@bucket/file?region=us-east-1&scheme=http&endpoint_override={place}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request: object, client_address: object) -> None:
        """The client has given up, and asks again."""


class SlowHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        store = self.server
        assert isinstance(store, SlowStore)
        assert store.answers.wait(PATIENCE_S)
        self.send_response(206 if "Range" in self.headers else 200)
        self.send_header("Content-Length", str(len(store.data)))
        self.send_header("Last-Modified", "Sat, 31 Jan 2026 12:00:00 GMT")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(store.data)

    do_GET = do_HEAD

    def log_message(self, *arguments: object) -> None:
        """Says nothing."""
