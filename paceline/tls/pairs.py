"""A certificate and its key that somebody else made: whether they fit each other and the names, and who has to be believed for them."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

from paceline.tls.trust import TrustError, context_of

_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n?", re.DOTALL)
_STEPS = 12  # of a handshake in memory; four are enough


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return a context for a server with this certificate. Raises TrustError where a file cannot be read, or the two are not a pair."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for path in (certificate, key):
        if not path.is_file():
            raise TrustError(f"{path} is no file; --tls takes a certificate and its key in PEM, or self-signed")
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (ssl.SSLError, OSError, ValueError) as error:
        raise TrustError(f"{certificate} and {key} are no pair of a certificate and its key in PEM without a password: {error}") from error
    return context


def required_authority(certificate: Path, key: Path, host: str) -> str | None:
    """Return the authority, as PEM, that clients have to pin to believe this certificate for `host`: the last one in its file. None: it is
    one that this machine believes anyhow. Raises TrustError where no client could believe it: another name, or its time is over."""
    serving = server_context(certificate, key)
    if _refusal(serving, ssl.create_default_context(), host) is None:
        return None
    last = _CERTIFICATE.findall(certificate.read_text(errors="replace"))[-1]
    refusal = _refusal(serving, context_of(last), host)
    if refusal is not None:
        raise TrustError(f"no client could believe {certificate} for {host}: {refusal}; use one that has this name and has not ended")
    return str(last)


def _refusal(serving: ssl.SSLContext, believing: ssl.SSLContext, host: str) -> str | None:
    """Why a client refuses this server; None: it does not. The handshake is one in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = serving.wrap_bio(to_server, to_client, server_side=True)
    client = believing.wrap_bio(to_client, to_server, server_hostname=host)
    for _ in range(_STEPS):
        done = True
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                done = False
            except ssl.SSLCertVerificationError as error:
                return error.verify_message
            except ssl.SSLError as error:
                return error.reason or str(error)
        if done:
            return None
    return "the handshake does not end"
