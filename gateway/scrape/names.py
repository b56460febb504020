"""The targets that a name has in DNS: its addresses, or its service records (RFC 2782)."""

import asyncio
import functools
import socket
from concurrent.futures import ThreadPoolExecutor

from gateway.scrape.job import SRV, DnsName, TargetGroup

# A pool of its own: name servers that do not answer must not take the threads that everything else needs.
_RESOLVERS = ThreadPoolExecutor(4, "resolve")
_FAMILIES = {"": socket.AF_UNSPEC, "A": socket.AF_INET, "AAAA": socket.AF_INET6}
_RESOLV_CONF, _DNS_PORT = "/etc/resolv.conf", 53


class NotResolved(Exception):
    """DNS does not say which targets there are; the message says why."""


async def resolve(source: DnsName, timeout_s: float) -> tuple[TargetGroup, ...]:
    """Raises NotResolved. The system's resolver, which is asked for addresses, has a time limit of its own."""
    return await (_services(source, timeout_s) if source.type == SRV else _addresses(source))


async def _addresses(source: DnsName) -> tuple[TargetGroup, ...]:
    name, port = source.name, source.port
    ask = functools.partial(socket.getaddrinfo, name, port, family=_FAMILIES[source.type], type=socket.SOCK_STREAM)
    try:
        found = await asyncio.get_running_loop().run_in_executor(_RESOLVERS, ask)
    except (OSError, UnicodeError) as error:  # UnicodeError: no name may be so
        raise NotResolved(str(error)) from None
    hosts = sorted({str(address[0]) for *_, address in found})
    targets = tuple(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host in hosts)
    return (TargetGroup(targets, (("__meta_dns_name", name),)),)


async def _services(source: DnsName, timeout_s: float) -> tuple[TargetGroup, ...]:
    """The system's resolver knows no service records, so a library asks the system's name servers."""
    from dns.asyncresolver import Resolver
    from dns.exception import DNSException

    try:
        resolver = Resolver(_RESOLV_CONF)
        resolver.port = _DNS_PORT
        answer = await resolver.resolve(source.name, SRV, lifetime=timeout_s, search=True)
    except (DNSException, OSError, UnicodeError) as error:
        raise NotResolved(str(error)) from None
    found = sorted({(record.target.to_text(omit_final_dot=True), int(record.port)) for record in answer})
    return tuple(
        TargetGroup(
            (f"{host}:{port}",),
            (
                ("__meta_dns_name", source.name),
                ("__meta_dns_srv_record_target", host),
                ("__meta_dns_srv_record_port", str(port)),
            ),
        )
        for host, port in found
        if host != "."  # the service is decidedly not available
    )
