"""A DNS server for tests."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import dns.message
import dns.rcode
import dns.rrset


@dataclass
class NameServer:
    """Answers with the records of a name (in the text form of zone files), or that there is no such name; or not."""

    port: int
    records: dict[str, list[str]] = field(default_factory=dict)  # SRV records by name
    silent: bool = False

    def answer(self, data: bytes) -> bytes:
        query = dns.message.from_wire(data)
        response = dns.message.make_response(query)
        (question,) = query.question
        if records := self.records.get(question.name.to_text(omit_final_dot=True)):
            response.answer.append(dns.rrset.from_text(question.name, 1, "IN", "SRV", *records))
        else:
            response.set_rcode(dns.rcode.NXDOMAIN)
        return response.to_wire()


@contextmanager
def name_server() -> Iterator[NameServer]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("127.0.0.1", 0))
        server = NameServer(listening.getsockname()[1])

        def serve() -> None:
            while (received := listening.recvfrom(4096))[0]:
                if not server.silent:
                    listening.sendto(server.answer(received[0]), received[1])

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server
        finally:
            listening.sendto(b"", listening.getsockname())
            thread.join()
