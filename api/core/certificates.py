"""The coordinator's own TLS: the certificate that its sockets show, kept fresh while it runs."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from paceline.api.settings import LOOPBACK_NAMES, Settings
from paceline.tls.authority import CertificateFiles, ensure_certificate
from paceline.tls.pairs import server_context
from paceline.tls.trust import TrustError

SELF_SIGNED = "self-signed"
TLS_FOLDER = "tls"  # in the data folder
#: How often the certificate is looked at while the coordinator runs.
LOOK_SECONDS = 600.0

log = logging.getLogger(__name__)


@dataclass
class ServerCertificate:
    """A certificate and its key in files. `context` shows the newest content to each new connection."""

    certificate: Path
    key: Path
    context: ssl.SSLContext
    authority: Path | None = None  # one of our own; None: somebody else's
    renew: Callable[[datetime], bool] = lambda now: False  # makes the files anew where they end soon

    def __post_init__(self) -> None:
        self._loaded = self._state()

    @classmethod
    def of_files(cls, certificate: Path, key: Path) -> ServerCertificate:
        """Use files that somebody else keeps fresh. Raises TrustError where they are no pair."""
        return cls(certificate, key, server_context(certificate, key))

    def refresh(self, now: datetime) -> bool:
        """Renew what ends soon, and load what has changed. Returns whether new connections get another certificate now. A pair that does
        not fit is not loaded: the old one goes on."""
        self.renew(now)
        state = self._state()
        if state == self._loaded:
            return False
        server_context(self.certificate, self.key)  # raises where they are no pair, before the one in use is touched
        self.context.load_cert_chain(self.certificate, self.key)
        self._loaded = state
        return True

    async def keep(self) -> None:
        """Refresh again and again, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                if await asyncio.to_thread(self.refresh, datetime.now(UTC)):
                    log.info("new connections get the new certificate of %s", self.certificate)
            except (TrustError, OSError) as error:
                log.warning("the certificate was not renewed, the old one goes on: %s", error)

    def _state(self) -> tuple[tuple[int, int, int], ...]:
        found = [path.stat() for path in (self.certificate, self.key)]
        return tuple((each.st_ino, each.st_size, each.st_mtime_ns) for each in found)


def own_certificate(settings: Settings, hosts: Sequence[str]) -> ServerCertificate:
    """A certificate of an authority of our own for this machine, made where it is missing. Raises TrustError or OSError."""
    files = CertificateFiles(settings.data / TLS_FOLDER)

    def renew(now: datetime) -> bool:
        return ensure_certificate(files.folder, _names(settings, hosts), now)

    renew(datetime.now(UTC))
    return ServerCertificate(files.server, files.server_key, server_context(files.server, files.server_key), files.authority, renew)


def _names(settings: Settings, hosts: Sequence[str]) -> list[str]:
    """The names and addresses under which this machine may be asked for."""
    own = [entry.address for owned in psutil.net_if_addrs().values() for entry in owned if entry.family == socket.AF_INET]
    public = urlsplit(settings.public_url).hostname or ""
    named = [name for name in settings.hosts if name not in LOOPBACK_NAMES]
    return sorted({*hosts, *own, *named, public, socket.gethostname(), "localhost", "127.0.0.1"} - {"", "0.0.0.0"})
