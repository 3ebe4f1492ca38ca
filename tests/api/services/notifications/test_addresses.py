"""The guard of webhooks: every way that we know of to the inside is refused, and what the machine's admin allows is let through."""

from __future__ import annotations

from ipaddress import ip_address

import httpx
import pytest

from paceline.api.services.notifications.addresses import (
    AllowedTargets,
    HostNotFoundError,
    TargetRefusedError,
    checked_addresses,
    resolved,
    target_of,
    why_inside,
)

NOTHING = AllowedTargets()
INSIDE = [
    "127.0.0.1",
    "127.8.8.8",
    "0.0.0.0",
    "10.1.2.3",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "100.100.100.200",  # Alibaba's metadata
    "169.254.169.254",  # metadata of most clouds
    "168.63.129.16",  # Azure's wire server
    "192.0.0.192",  # Oracle's metadata
    "192.0.2.1",
    "198.18.0.1",
    "224.0.0.1",
    "239.1.1.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::1",
    "fe80::1",
    "fc00::1",
    "fd00:ec2::254",  # metadata of AWS
    "ff02::1",
    "2001:db8::1",
]
#: Spellings that the system reads as 127.0.0.1, and names of this machine.
UNUSUAL = ["2130706433", "0x7f000001", "0177.0.0.1", "127.1", "localhost", "LOCALHOST", "localhost.", "[::1]", "[::ffff:7f00:1]"]


@pytest.mark.parametrize("address", INSIDE)
async def test_an_address_of_the_inside_is_refused(address: str) -> None:
    assert why_inside(ip_address(address)) is not None
    url = target_of(f"https://{f'[{address}]' if ':' in address else address}/hook")
    with pytest.raises(TargetRefusedError, match="PACELINE_NOTIFY_ALLOW"):
        await checked_addresses(url, NOTHING)


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_an_address_of_the_public_internet_is_none(address: str) -> None:
    assert why_inside(ip_address(address)) is None


@pytest.mark.parametrize("host", UNUSUAL)
async def test_an_unusual_spelling_of_loopback_is_refused(host: str) -> None:
    with pytest.raises(TargetRefusedError):
        await checked_addresses(target_of(f"https://{host}/hook"), NOTHING)


@pytest.mark.parametrize("found", [["10.0.0.5"], ["8.8.8.8", "10.0.0.5"], ["::ffff:10.0.0.5"], ["8.8.8.8", "::1"]])
async def test_a_name_with_any_private_address_is_refused_and_named(found: list[str]) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return found

    with pytest.raises(TargetRefusedError, match=r"hooks.example.org has the address"):
        await checked_addresses(target_of("https://hooks.example.org/"), NOTHING, resolve)


async def test_every_public_address_of_a_name_is_given_back() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        assert (host, port) == ("hooks.example.org", 8443)
        return ["8.8.8.8", "2606:4700::1111"]

    assert await checked_addresses(target_of("https://HOOKS.example.org:8443/"), NOTHING, resolve) == ["8.8.8.8", "2606:4700::1111"]


async def test_a_name_without_an_address_may_have_one_later() -> None:
    async def nothing(host: str, port: int) -> list[str]:
        return []

    with pytest.raises(HostNotFoundError, match=r"hooks.example.org"):
        await checked_addresses(target_of("https://hooks.example.org/"), NOTHING, nothing)
    with pytest.raises(HostNotFoundError):
        await resolved("no-such-host.invalid", 443)


@pytest.mark.parametrize(
    ("allowed", "url", "is_let_through"),
    [
        ("127.0.0.1", "http://127.0.0.1:9/", True),
        ("127.0.0.0/8", "http://127.3.2.1/", True),
        ("127.0.0.1", "http://127.0.0.2/", False),
        ("127.0.0.1", "http://[::ffff:127.0.0.1]/", True),
        ("localhost", "http://localhost/", True),
        ("LocalHost", "http://LOCALHOST./", True),
        ("localhost", "http://127.0.0.1/", False),
        ("10.0.0.0/8", "https://127.0.0.1/", False),
        ("fd00::/8, 127.0.0.1", "https://[fd00::1]/", True),
    ],
)
async def test_what_is_allowed_is_let_through_and_nothing_else(allowed: str, url: str, is_let_through: bool) -> None:
    if is_let_through:
        assert await checked_addresses(target_of(url), AllowedTargets.parse(allowed))
        return
    with pytest.raises(TargetRefusedError):
        await checked_addresses(target_of(url), AllowedTargets.parse(allowed))


async def test_plain_http_is_refused_to_the_public_internet() -> None:
    with pytest.raises(TargetRefusedError, match="https://"):
        await checked_addresses(target_of("http://8.8.8.8/"), NOTHING)


@pytest.mark.parametrize(
    "text",
    ["", "hooks.example.org/x", "ftp://example.org/", "file:///etc/passwd", "https://", "https:///x", "https://user:pass@example.org/", "https://u@h/",
     "gopher://127.0.0.1:25/", "https://example.org/#part", "https://[::1", "https://example.org:99999/", "https://example.org:0/", "javascript:alert(1)"],
)  # fmt: skip
def test_what_is_no_address_of_a_webhook_is_refused(text: str) -> None:
    with pytest.raises(TargetRefusedError):
        target_of(text)


def test_the_checked_and_the_connected_host_are_read_by_the_same_parser() -> None:
    """A backslash, which browsers read as a slash, must not make the guard see another host than the client."""
    for text in ("https://example.org\\@127.0.0.1/", "https://127.0.0.1\\.example.org/", "https://example.org%00.evil/"):
        try:
            url = target_of(text)
        except TargetRefusedError:
            continue
        assert url.copy_with(host="8.8.8.8").host == "8.8.8.8"
        assert httpx.Request("POST", url).url.host == url.host
