"""Guards where webhooks may go: the coordinator stands inside the network, and a channel's address is a user's text (server-side request forgery).

A host is resolved once, every address that it has is checked, and the connection goes to an address that was checked. A name that resolves
to another address a moment later (DNS rebinding) gains nothing. Redirects are not followed, since each would be another address.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import httpx

RESOLVE_SECONDS = 5.0
MOST_CHARACTERS = 2000
#: Public by their numbers, but the cloud's own services answer there: Azure's wire server.
CLOUD_SERVICES = frozenset({ip_address("168.63.129.16")})
#: Addresses of IPv6 that carry one of IPv4 in their last 32 bits: NAT64 (RFC 6052, RFC 8215), and IPv4-compatible ones.
CARRIERS = (ip_network("64:ff9b::/96"), ip_network("64:ff9b:1::/48"), ip_network("::/96"))
#: Reserved by IANA, which not every version of Python knows: 192.0.0.0/24 has the metadata of a cloud.
RESERVED = tuple(
    ip_network(text)
    for text in (
        "0.0.0.0/8",
        "100.64.0.0/10",
        "192.0.0.0/24",
        "192.88.99.0/24",
        "198.18.0.0/15",
        "240.0.0.0/4",
        "100::/64",
        "2001::/23",
        "2001:db8::/32",
        "3fff::/20",
        "5f00::/16",
        "fc00::/7",
        "fec0::/10",
    )
)
HOW_TO_ALLOW = "set PACELINE_NOTIFY_ALLOW={host} where the coordinator starts, if it is meant to be reached"

Address = IPv4Address | IPv6Address
Resolve = Callable[[str, int], Awaitable[list[str]]]


class TargetRefusedError(Exception):
    """The address is one that webhooks must not reach. Trying again changes nothing."""


class HostNotFoundError(Exception):
    """The host has no address at the moment."""


@dataclass(frozen=True)
class AllowedTargets:
    """Hosts and networks that the machine's admin has allowed besides the public internet over https."""

    names: frozenset[str] = frozenset()
    networks: tuple[IPv4Network | IPv6Network, ...] = ()

    @classmethod
    def parse(cls, text: str) -> AllowedTargets:
        """Read a comma-separated list of host names, addresses and networks."""
        names, networks = set[str](), list[IPv4Network | IPv6Network]()
        for part in (part.strip().lower() for part in text.split(",")):
            if not part:
                continue
            try:
                networks.append(ip_network(part, strict=False))
            except ValueError:
                names.add(part.rstrip("."))
        return cls(frozenset(names), tuple(networks))

    def has(self, host: str, address: Address) -> bool:
        inner = carried(address)
        return host in self.names or any(each in network for network in self.networks for each in (address, inner))


def target_of(text: str) -> httpx.URL:
    """The address of a webhook. Raises TargetRefusedError where it is none."""
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, ValueError, UnicodeError) as error:
        raise TargetRefusedError(f"the address is none that can be read: {error}") from None
    if url.scheme not in ("https", "http") or not url.raw_host:
        raise TargetRefusedError("the address must begin with https:// and name a host, such as https://hooks.example.org/paceline")
    if not 0 < port_of(url) < 1 << 16:
        raise TargetRefusedError(f"port {url.port} is none; ports are 1 to 65535")
    if url.userinfo:
        raise TargetRefusedError("the address has a user or password before the host, which is not supported; use a token in its path")
    if url.fragment:
        raise TargetRefusedError("the address has a part after '#', which is never sent; leave it out")
    return url


async def checked_addresses(url: httpx.URL, allowed: AllowedTargets, resolve: Resolve | None = None) -> list[str]:
    """The addresses of a webhook's host, all of which may be reached. Raises TargetRefusedError, and HostNotFoundError."""
    host = host_of(url)
    found = await (resolve or resolved)(host, port_of(url))
    if not found:
        raise HostNotFoundError(f"{host} has no address")
    for text in found:
        address = ip_address(text)
        if allowed.has(host, address):
            continue
        if why := why_inside(address):
            shown = host if host == text else f"{host} has the address {text}, which"
            raise TargetRefusedError(f"{shown} is {why}; {HOW_TO_ALLOW.format(host=host)}")
        if url.scheme != "https":
            raise TargetRefusedError(
                f"{host} would be told over plain http, which others can read; use https://, or {HOW_TO_ALLOW.format(host=host)}"
            )
    return found


def host_of(url: httpx.URL) -> str:
    return url.raw_host.decode().strip("[]").rstrip(".").lower()


def port_of(url: httpx.URL) -> int:
    return (443 if url.scheme == "https" else 80) if url.port is None else url.port


async def resolved(host: str, port: int) -> list[str]:
    """The addresses of a host as the system finds them, which also reads numbers in unusual forms, such as 2130706433."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(RESOLVE_SECONDS):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    except TimeoutError:
        raise HostNotFoundError(f"the address of {host} was not found within {RESOLVE_SECONDS:.0f} s") from None
    except (OSError, UnicodeError) as error:
        raise HostNotFoundError(f"the address of {host} was not found: {getattr(error, 'strerror', None) or error}") from None
    return list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found))


def carried(address: Address) -> Address:
    """The address of IPv4 that one of IPv6 leads to; any other address itself."""
    if isinstance(address, IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
    if inner is None and any(address in network for network in CARRIERS) and int(address) > 1:
        inner = IPv4Address(int(address) & 0xFFFF_FFFF)
    return inner or address


def why_inside(address: Address) -> str | None:
    """The reason why an address is of the inside, in words; None: it is of the public internet."""
    inner = carried(address)
    if inner in CLOUD_SERVICES:
        return "an address of the cloud's own services"
    for is_so, what in (
        (inner.is_unspecified, "the unspecified address, which is this machine"),
        (inner.is_loopback, "a loopback address, which is this machine"),
        (inner.is_link_local, "a link-local address, where clouds serve the machine's credentials"),
        (inner.is_multicast, "a multicast address"),
        (not inner.is_global or any(inner in network for network in RESERVED), "an address of a private or reserved network"),
    ):
        if is_so:
            return what
    return None
