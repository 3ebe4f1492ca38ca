"""The address under which a stack is open to other machines, and whether TLS is in front of it. Without an address it is open to this
machine alone."""

from __future__ import annotations

import ipaddress
import json
import socket
from dataclasses import asdict, dataclass
from urllib.parse import urlsplit

import psutil

from paceline.cli.errors import CliError, UsageProblem
from paceline.cli.local.layout import Layout
from paceline.cli.settings import allowed_hosts, write_private

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Exposure:
    """The address of a stack. `tls_url` is the https address of a proxy on this machine, which forwards to the coordinator on loopback;
    empty: plain http."""

    host: str  # as it was given: a name or an address
    address: str  # the IPv4 address of it
    tls_url: str = ""

    @property
    def listens_on(self) -> tuple[str, ...]:
        """The addresses that the coordinator listens on. Behind a proxy on this machine loopback is enough."""
        return (LOOPBACK,) if self.tls_url else (LOOPBACK, self.address)

    def public_url(self, port: int) -> str:
        return self.tls_url or f"http://{self.host}:{port}"

    def description(self, port: int) -> str:
        """The open addresses, in words."""
        if self.tls_url:
            return f"{self.tls_url}, which is to forward to http://{LOOPBACK}:{port}; agents and ranks meet at {self.address}"
        return f"{self.address} port {port}, plain http: keys travel readable; agents and ranks meet at {self.address}, on any port"

    def environment(self, port: int) -> dict[str, str]:
        """The variables that the coordinator needs for this exposure."""
        names = [self.host, self.address, urlsplit(self.public_url(port)).hostname or ""]
        return {
            "PACELINE_ALLOWED_HOSTS": allowed_hosts(*names),
            "PACELINE_PUBLIC_URL": self.public_url(port),
            "PACELINE_INSECURE_PUBLIC": "false" if self.tls_url else "true",
        }


def requested_exposure(host: str | None, public_url: str | None, insecure: bool) -> Exposure | None:
    """The exposure that the options of `up` ask for; None: none. Raises UsageProblem where they cannot work, or leave open how keys
    travel."""
    if host is None:
        if public_url or insecure:
            raise UsageProblem("--public-url and --insecure-public say how --host is reached, and there is no --host", _name_an_address())
        return None
    if public_url and insecure:
        raise UsageProblem("--public-url is for TLS in front, --insecure-public for none", "leave one of them out")
    if not public_url and not insecure:
        raise _undecided(host)
    return Exposure(host, own_address(host), _https(public_url) if public_url else "")


def own_address(host: str) -> str:
    """The IPv4 address of `host` under which other machines reach this one. Raises UsageProblem where there is none."""
    try:
        found = [str(entry[4][0]) for entry in socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)]
    except OSError as error:
        raise UsageProblem(f"--host {host} has no IPv4 address here ({error})", _name_an_address()) from error
    own = set(addresses())
    if here := next((address for address in found if address in own), None):
        return here
    first = ipaddress.ip_address(found[0])
    description = host if host == str(first) else f"{host} ({first})"
    if first.is_loopback or first.is_unspecified:
        raise UsageProblem(f"--host {description} is no address under which other machines reach this one", _name_an_address())
    raise UsageProblem(f"--host {description}: no network interface of this machine has this address", _name_an_address())


def addresses() -> list[str]:
    """The IPv4 addresses of this machine, loopback left out."""
    entries = [entry for owned in psutil.net_if_addrs().values() for entry in owned if entry.family == socket.AF_INET]
    return [entry.address for entry in entries if not ipaddress.ip_address(entry.address).is_loopback]


def remember(layout: Layout, exposure: Exposure | None) -> None:
    """Keep the exposure for the next `up`, until `down`."""
    if exposure is None:
        layout.exposure.unlink(missing_ok=True)
    else:
        write_private(layout.exposure, asdict(exposure))


def remembered(layout: Layout) -> Exposure | None:
    try:
        return Exposure(**json.loads(layout.exposure.read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise CliError(f"{layout.exposure} is damaged: {error!r}", "delete it, then say --host again") from error


def _https(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise UsageProblem(
            f"--public-url {url} is not an https address",
            "give that of the proxy in front, such as https://train.example; without TLS, leave it out and add --insecure-public",
        )
    return url.rstrip("/")


def _undecided(host: str) -> UsageProblem:
    return UsageProblem(
        f"--host {host} answers other machines over plain http: keys, login links and code would travel readable",
        f"on a network that you trust add --insecure-public; else put a TLS proxy in front, and add --public-url https://{host} "
        "(docs/second_machine.md)",
    )


def _name_an_address() -> str:
    own = addresses()
    return f"name an address of this machine with --host: {', '.join(own)}" if own else "this machine has no network besides loopback yet"
