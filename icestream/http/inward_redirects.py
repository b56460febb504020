"""Redirects that would have us ask programs on our own machine, or the metadata server of a cloud."""

import ipaddress
import socket

_METADATA_SERVERS = {"100.100.100.200", "192.0.0.192", "fd00:ec2::254"}
"""Those of Alibaba Cloud, Oracle Cloud and AWS; others are link-local."""


def leads_inward(first: str | None, to: str | None) -> bool:
    """Whether `to` is a host that others cannot ask, and the host that was asked `first` is not. A name without
    addresses is no such host. Takes as long as names take to resolve.
    """
    return to != first and _is_inward(to) and not _is_inward(first)


def _is_inward(host: str | None) -> bool:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    addresses = [ipaddress.ip_address(str(address[0]).partition("%")[0]) for *_, address in found]
    plain = [getattr(address, "ipv4_mapped", None) or address for address in addresses]
    return any(
        address.is_loopback or address.is_link_local or address.is_unspecified or str(address) in _METADATA_SERVERS
        for address in plain
    )
