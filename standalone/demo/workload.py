"""A small traced web service that drives itself, for the demo and for tests.

    python -m standalone.demo.workload --port 0 --seconds 10 --json
    python -m standalone.demo.workload --requests 200 --cpu-ms 20 --json

The first command serves HTTP on loopback, with threads (traced by hand) on --port and with asyncio (traced with
OpenTelemetry) on a port of its own, and sends itself requests of different cost. The second one uses no HTTP: four
threads and four asyncio tasks run requests of known CPU, and each request is printed with its thread CPU.
"""

import argparse
import asyncio
import http.client
import http.server
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

from opentelemetry import propagate, trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider

from icestream import tracing
from standalone.demo.known_cpu import run_known_cpu
from standalone.demo.request_work import ASYNCIO, THREADED, Work

SERVICE = "shop"
CLIENTS = 4
MOST_REPEATS = 50


def main(argv: list[str] | None = None) -> int:
    """Runs the service; returns its exit code."""
    args = _arguments(argv)
    tracing.start(service=SERVICE, socket=args.socket)
    if args.wait:
        _say({"pid": os.getpid()})
        sys.stdin.readline()
    if args.requests:
        for request in run_known_cpu(args.requests, args.cpu_ms * 1_000_000):
            _say(request._asdict())
        tracing.stop()
        return 0
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with _threaded_server(args.port) as port, _asyncio_server() as asyncio_port:
        _say({"listening": f"http://127.0.0.1:{port}", "asyncio": f"http://127.0.0.1:{asyncio_port}"})
        answered = _drive(port, asyncio_port, args.rate, args.seconds, stop)
    tracing.stop()
    _say({"requests": sum(answered.values()), "operations": dict(answered), "cpu_s": round(time.process_time(), 3)})
    return 0


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m standalone.demo.workload",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--port", type=int, default=0, help="port of the threaded server; 0: any (default)")
    parser.add_argument("--seconds", type=float, default=10, help="how long to serve (default: 10)")
    parser.add_argument("--rate", type=float, default=35, help="requests a second to send itself (default: 35)")
    parser.add_argument("--requests", type=int, default=0, help="run this many requests of known CPU instead")
    parser.add_argument(
        "--cpu-ms", type=int, default=20, help="milliseconds of thread CPU of each of them (default: 20)"
    )
    parser.add_argument("--socket", help="the collector's activity socket [ICESTREAM_ACTIVITY_SOCKET]")
    parser.add_argument(
        "--wait", action="store_true", help="print the process ID, then wait for a line on standard input"
    )
    parser.add_argument("--json", action="store_true", help="print JSON lines; the only format")
    return parser.parse_args(argv)


class _Handler(http.server.BaseHTTPRequestHandler):
    """A request on a thread, traced by hand."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        work = THREADED.get(url.path)
        if work is None:
            self.send_error(404)
            return
        trace_id, parent = _trace_of(self.headers.get("traceparent"))
        with tracing.span(trace_id, name=f"GET {url.path}", parent_id=parent):
            for _ in range(_repeats(url.query)):
                for _ in work():
                    pass
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.send_header("X-Trace-Id", trace_id)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Logs nothing: requests are not worth a line each."""


def _trace_of(traceparent: str | None) -> tuple[str, str | None]:
    """Returns the trace ID and the span ID of a request (W3C Trace Context), or a new trace ID."""
    fields = (traceparent or "").split("-")
    if len(fields) == 4 and len(fields[1]) == 32 and len(fields[2]) == 16:
        return fields[1], fields[2]
    return f"{random.getrandbits(128) or 1:032x}", None


@contextmanager
def _threaded_server(port: int) -> Iterator[int]:
    """Runs a server that gives every connection a thread; yields its port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), _Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="http", daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def _asyncio_server() -> Iterator[int]:
    """Runs a server that answers all connections on one thread, traced with OpenTelemetry; yields its port."""
    provider = TracerProvider(resource=Resource.create({"service.name": SERVICE}))
    trace.set_tracer_provider(provider)
    tracer = trace.get_tracer("shop")
    loop = asyncio.new_event_loop()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                headers = {}
                while (header := await reader.readline()).strip():
                    name, _, value = header.decode("latin-1").partition(":")
                    headers[name.strip().lower()] = value.strip()
                url = urlsplit(line.decode("latin-1").split(" ")[1])
                work = ASYNCIO.get(url.path)
                if work is not None:
                    with tracer.start_as_current_span(f"GET {url.path}", context=propagate.extract(headers)):
                        await _in_turns(work, _repeats(url.query))
                status = b"404 Not Found" if work is None else b"200 OK"
                writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")
                await writer.drain()
        except (ConnectionError, IndexError, asyncio.CancelledError):
            return  # the client went away or speaks no HTTP, or the server ends
        finally:
            writer.close()

    server = loop.run_until_complete(asyncio.start_server(answer, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever, name="asyncio", daemon=True)
    thread.start()
    try:
        yield int(server.sockets[0].getsockname()[1])
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        for connection in asyncio.all_tasks(loop):
            connection.cancel()
            loop.run_until_complete(connection)  # `answer` ends quietly
        loop.close()


async def _in_turns(work: Work, repeats: int) -> None:
    for _ in range(repeats):
        for _ in work():
            await asyncio.sleep(0)


def _drive(port: int, asyncio_port: int, rate: float, seconds: float, stop: threading.Event) -> Counter[str]:
    """Sends requests from a few threads until the time is over or `stop` is set; returns the answers by operation."""
    answered: Counter[str] = Counter()
    end = time.monotonic() + seconds
    targets = [(port, path) for path in THREADED] + [(asyncio_port, path) for path in ASYNCIO]

    def send(seed: int) -> None:
        choice = random.Random(seed)
        connections = {p: http.client.HTTPConnection("127.0.0.1", p, timeout=10) for p in (port, asyncio_port)}
        while not stop.wait(choice.expovariate(rate / CLIENTS)) and time.monotonic() < end:
            to, path = choice.choice(targets)
            repeats = min(MOST_REPEATS, int(choice.paretovariate(2.0)))
            parent = f"00-{choice.getrandbits(128) or 1:032x}-{choice.getrandbits(64) or 1:016x}-01"
            headers = {"traceparent": parent} if choice.random() < 0.5 else {}
            try:
                connections[to].request("GET", f"{path}?n={repeats}", headers=headers)
                connections[to].getresponse().read()
            except OSError:
                connections[to].close()
                continue
            answered[f"GET {path}"] += 1
        for connection in connections.values():
            connection.close()

    clients = [threading.Thread(target=send, args=(random.getrandbits(64),), name="client") for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    return answered


def _repeats(query: str) -> int:
    """Returns how often to repeat the work: `n` in the query."""
    text = parse_qs(query).get("n", ["1"])[0]
    return min(MOST_REPEATS, int(text)) if text.isdecimal() else 1


def _say(fields: dict[str, object]) -> None:
    print(json.dumps(fields), flush=True)


if __name__ == "__main__":
    sys.exit(main())
