"""Whether a connection comes from this machine: by its peer's address, and by the Host that it asks for."""

from __future__ import annotations

import functools
import ipaddress

from starlette.types import Scope

#: How many peers are remembered for what they are: agents come every second.
MOST_ADDRESSES = 4_096


def host_name(host: str) -> str:
    """The name in a Host header: `Name:port` -> `name`; IPv6 keeps its brackets."""
    name = host.strip().lower()
    return name[: name.index("]") + 1] if name.startswith("[") and "]" in name else name.partition(":")[0]


def is_loopback(scope: Scope) -> bool:
    client = scope.get("client")
    return client is None or _is_loopback(client[0])  # None: a Unix socket


@functools.lru_cache(maxsize=MOST_ADDRESSES)
def _is_loopback(peer: str) -> bool:
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
