"""ClickHouse's HTTP interface in front of the embedded engine: no registry that this project uses has a server.

    python -m tests.kubernetes.clickhouse FOLDER HOST:PORT USER:PASSWORD

It answers what clickhouse_connect asks, with a connection of the engine for each request.
"""

import base64
import email
import json
import re
import sys
import tempfile
import urllib.parse
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import cast

import chdb
from clickhouse_connect.driver._backend.chdb_backend import CHDB_TRANSPORT_SETTINGS, _decompress

_INSERT = re.compile(rb"\s*(INSERT INTO [^\n]*?) FORMAT (\w+)\n", re.IGNORECASE)
_HAS_ROWS = re.compile(rb"\s*(SELECT|WITH|SHOW|DESCRIBE|EXISTS|EXPLAIN)\b", re.IGNORECASE)


class ClickHouseHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine = ""
    login = ""

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        body = self._body()
        encoding = self.headers.get("Content-Encoding")
        self._answer(_decompress(body, encoding) if encoding else body)

    def log_message(self, *args: object) -> None:
        pass

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _answer(self, body: bytes) -> None:
        path, _, text = self.path.partition("?")
        if path == "/ping":
            return self._send(200, b"Ok.\n", {})
        if self.headers.get("Authorization") != f"Basic {base64.b64encode(self.login.encode()).decode()}":
            return self._send(403, b"Code: 516. DB::Exception: wrong password", {"X-ClickHouse-Exception-Code": "516"})
        options = dict(urllib.parse.parse_qsl(text, keep_blank_values=True))
        if self.headers.get_content_type() == "multipart/form-data":  # parameters that are too long for an address
            form = email.message_from_bytes(f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode() + body)
            for part in cast(list[Message], form.get_payload()):
                name = part.get_param("name", header="content-disposition")
                options[str(name)] = cast(bytes, part.get_payload(decode=True)).decode()
            body = b""
        sql = b"\n".join(part for part in (options.pop("query", "").encode(), body) if part)
        try:
            headers, result = _run(self.engine, sql, options)
        except Exception as error:  # chDB has only RuntimeError, and others for what it cannot take
            message = str(error)[str(error).find("Code: ") :]
            print(f"{message}\n{sql[:2000]!r} {options}", file=sys.stderr, flush=True)
            code = (re.match(r"Code: (\d+)", message) or ["", "1002"])[1]
            return self._send(500, message.encode(), {"X-ClickHouse-Exception-Code": code})
        return self._send(200, result, headers)

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body)), "X-ClickHouse-Timezone": "UTC"} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def _run(engine: str, sql: bytes, options: dict[str, str]) -> tuple[dict[str, str], bytes]:
    """Returns headers and result."""
    connection = chdb.connect(engine)  # type: ignore[no-untyped-call]
    try:
        if database := options.pop("database", ""):
            connection.query(f"USE `{database}`")
        parameters = {
            name.removeprefix("param_"): options.pop(name) for name in list(options) if name.startswith("param_")
        }
        default = options.pop("default_format", "TabSeparated")
        for name, value in options.items():
            if name not in CHDB_TRANSPORT_SETTINGS:
                connection.query(f"SET {name} = '{value}'")
        with tempfile.NamedTemporaryFile() as file:
            if found := _INSERT.match(sql):  # rows follow, which are no text
                file.write(sql[found.end() :])
                file.flush()
                sql = b"%s FROM INFILE '%s' FORMAT %s" % (found[1], file.name.encode(), found[2])
            done = connection.query(sql, default, params=parameters)
        rows = str(done.rows_read())
        headers = {"X-ClickHouse-Summary": json.dumps({"read_rows": rows, "written_rows": rows})}
        if _HAS_ROWS.match(sql):
            headers["X-ClickHouse-Format"] = default
        return headers, done.bytes() or b""
    finally:
        connection.close()


def main() -> None:
    folder, address, ClickHouseHandler.login = sys.argv[1:]
    host, _, port = address.rpartition(":")
    Path(folder).mkdir(exist_ok=True)
    ClickHouseHandler.engine = folder
    stays_open = chdb.connect(folder)  # type: ignore[no-untyped-call]
    ThreadingHTTPServer((host, int(port)), ClickHouseHandler).serve_forever()
    stays_open.close()


if __name__ == "__main__":
    main()
