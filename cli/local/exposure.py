"""The address under which a stack is open to other machines, and whether TLS is in front of it. Without an address it is open to this
machine alone."""

from __future__ import annotations

import ipaddress
import json
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from paceline.cli.errors import CliError, UsageProblem
from paceline.cli.local.layout import Layout
from paceline.cli.settings import allowed_hosts, write_private

LOOPBACK = "127.0.0.1"
EVERY_ADDRESS = "0.0.0.0"
SELF_SIGNED = "self-signed"
#: An address that no machine has (RFC 5737): nothing is sent to it, the kernel only says from where it would be.
ELSEWHERE = "192.0.2.1"


@dataclass(frozen=True)
class Exposure:
    """The address of a stack. `tls_url` is the https address of a proxy on this machine, which forwards to the coordinator on loopback;
    empty: plain http."""

    host: str  # as it was given: a name or an address
    address: str  # the IPv4 address of it
    tls_url: str = ""
    certificate: str = ""  # the coordinator's own TLS: SELF_SIGNED, or the path of a certificate; empty: none
    key: str = ""  # the path of its key
    authority: str = ""  # as PEM: the one that clients have to pin for a given certificate; empty: they know it, or it is our own

    @property
    def listens_on(self) -> tuple[str, ...]:
        """The addresses that the coordinator listens on. Behind a proxy on this machine loopback is enough."""
        if self.tls_url:
            return (LOOPBACK,)
        return (LOOPBACK, *(addresses() if self.host == EVERY_ADDRESS else (self.address,)))

    @property
    def arguments(self) -> list[str]:
        """The options of the coordinator for its own TLS."""
        return ["--tls", self.certificate, *([self.key] if self.key else [])] if self.certificate else []

    def public_url(self, port: int) -> str:
        name = self.address if self.host == EVERY_ADDRESS else self.host
        return self.tls_url or f"{'https' if self.certificate else 'http'}://{name}:{port}"

    def description(self, port: int) -> str:
        """The open addresses, in words."""
        if self.tls_url:
            return f"{self.tls_url}, which is to forward to http://{LOOPBACK}:{port}; agents and ranks meet at {self.address}"
        where = " and ".join(self.listens_on[1:])
        if self.certificate:
            return f"{where} port {port}, over TLS; agents and ranks meet at {self.address}, on any port"
        return f"{where} port {port}, plain http: keys travel readable; agents and ranks meet at {self.address}, on any port"

    def environment(self, port: int) -> dict[str, str]:
        """The variables that the coordinator needs for this exposure."""
        named = () if self.host == EVERY_ADDRESS else (self.host,)
        names = [*named, self.address, *self.listens_on[1:], urlsplit(self.public_url(port)).hostname or ""]
        return {
            "PACELINE_ALLOWED_HOSTS": allowed_hosts(*names),
            "PACELINE_PUBLIC_URL": self.public_url(port),
            "PACELINE_INSECURE_PUBLIC": "false" if self.tls_url or self.certificate else "true",
        }


def requested_exposure(
    host: str | None, public_url: str | None, insecure: bool, tls: str | None = None, tls_key: Path | None = None
) -> Exposure | None:
    """The exposure that the options of `up` ask for; None: none. Raises UsageProblem where they cannot work, or leave open how keys
    travel."""
    if tls_key is not None and tls in (None, SELF_SIGNED):
        raise UsageProblem(f"{tls_key} stands alone: 'paceline up' takes the key of a certificate, as in --tls CERT KEY", "leave it out")
    if host is None:
        if public_url or insecure or tls:
            raise UsageProblem(
                "--tls, --public-url and --insecure-public say how --host is reached, and there is no --host", _name_an_address()
            )
        return None
    if len([choice for choice in (public_url, insecure, tls) if choice]) > 1:
        raise UsageProblem(
            "--tls is for TLS here, --public-url for TLS in front, --insecure-public for none", "leave all of them out but one"
        )
    if not public_url and not insecure and not tls:
        raise _undecided(host)
    address = own_address(host)
    if tls:
        return _with_tls(host, address, tls, tls_key)
    return Exposure(host, address, _https(public_url) if public_url else "")


def _with_tls(host: str, address: str, tls: str, tls_key: Path | None) -> Exposure:
    """The exposure with the coordinator's own TLS. Raises UsageProblem where no client could believe the certificate."""
    if tls == SELF_SIGNED:
        return Exposure(host, address, certificate=SELF_SIGNED)
    from paceline.tls.pairs import required_authority
    from paceline.tls.trust import TrustError

    if tls_key is None:
        raise UsageProblem(f"--tls {tls} lacks its key", f"--tls CERT KEY, or --tls {SELF_SIGNED}")
    certificate, key = Path(tls).expanduser().absolute(), tls_key.expanduser().absolute()
    try:
        authority = required_authority(certificate, key, address if host == EVERY_ADDRESS else host)
    except TrustError as error:
        raise UsageProblem(str(error), f"--tls {SELF_SIGNED} makes one that fits") from error
    return Exposure(host, address, certificate=str(certificate), key=str(key), authority=authority or "")


def own_address(host: str) -> str:
    """The IPv4 address of `host` under which other machines reach this one; of 0.0.0.0, the one towards the world. Raises UsageProblem where
    there is none."""
    if host == EVERY_ADDRESS:
        return _main_address()
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


def _main_address() -> str:
    """The address that packets to other networks leave from, else the first one. Raises UsageProblem where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((ELSEWHERE, 9))
            found = str(probe.getsockname()[0])
        except OSError:  # no way out of this network
            found = ""
    own = addresses()
    if not own:
        raise UsageProblem(f"--host {EVERY_ADDRESS}: {_name_an_address()}", "connect it first")
    return found if found in own else own[0]


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
            f"give that of the proxy in front, such as https://train.example; without a proxy, leave it out and add --tls {SELF_SIGNED}",
        )
    return url.rstrip("/")


def _undecided(host: str) -> UsageProblem:
    return UsageProblem(
        f"--host {host} answers other machines over plain http: keys, login links and code would travel readable",
        f"add --tls {SELF_SIGNED}, or --tls CERT KEY; behind a TLS proxy --public-url https://{host}; on a network that you trust "
        "--insecure-public (docs/deploy/machines.md)",
    )


def _name_an_address() -> str:
    own = addresses()
    return f"name an address of this machine with --host: {', '.join(own)}" if own else "this machine has no network besides loopback yet"
