"""The authorities that a connection over TLS believes: the authorities of this machine, or one authority that is pinned by its fingerprint.

A coordinator whose certificate no public authority signed has one of its own. Join tokens carry the SHA-256 fingerprint of that
authority's certificate; agents and the command line fetch the certificate, compare, keep it, and from then on believe nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import re
import ssl
from urllib.parse import urlsplit

#: GET, without a key: the certificate of the coordinator's own authority, as PEM.
AUTHORITY_PATH = "/api/v1/authority.pem"
ALGORITHM = "sha256"
_DIGEST_BYTES = hashlib.sha256().digest_size
_MARK = "."  # between a join token and the fingerprint; neither has one


class TrustError(Exception):
    """An authority, a fingerprint or a token that cannot be believed. The message says what to do."""


def fingerprint_of(authority: str) -> str:
    """Return the fingerprint of a certificate in PEM: `sha256:` and 64 hexadecimal digits. Raises TrustError where it is no certificate."""
    try:
        return f"{ALGORITHM}:{hashlib.sha256(ssl.PEM_cert_to_DER_cert(_first_certificate(authority))).hexdigest()}"
    except ValueError as error:
        raise TrustError(f"this is no certificate in PEM: {authority[:40]!r}...") from error


def parse_fingerprint(text: str) -> str:
    """Return a fingerprint as `fingerprint_of` spells it; with colons and in capitals, as openssl prints it, it is understood too."""
    digits = re.sub(r"^sha256[:=]|^sha256 fingerprint=", "", text.strip().lower()).replace(":", "")
    if not re.fullmatch(r"[0-9a-f]{64}", digits):
        raise TrustError(f"{text!r} is no SHA-256 fingerprint: it has 64 hexadecimal digits, as 'paceline up' prints them")
    return f"{ALGORITHM}:{digits}"


def require_fingerprint(authority: str, expected: str, server: str) -> None:
    """Raise TrustError unless the certificate `authority`, which `server` gave, has this fingerprint."""
    found = fingerprint_of(authority)
    if not hmac.compare_digest(found, expected):
        raise TrustError(
            f"{server} shows the authority {found}, and {expected} was expected: it is another coordinator, something in between answers in its "
            "place, or its authority was made anew; ask who runs it for a new token or fingerprint"
        )


def with_fingerprint(token: str, fingerprint: str) -> str:
    """Return the join token with the fingerprint behind it, 43 characters of base64."""
    digest = bytes.fromhex(fingerprint.removeprefix(f"{ALGORITHM}:"))
    return f"{token}{_MARK}{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


def split_token(token: str) -> tuple[str, str | None]:
    """Return the secret part of a join token, and the fingerprint that it carries. Raises TrustError where that is damaged."""
    secret, mark, coded = token.partition(_MARK)
    if not mark:
        return token, None
    try:
        digest = base64.b64decode(coded + "=" * (-len(coded) % 4), altchars=b"-_", validate=True)
    except ValueError:
        digest = b""
    if len(digest) != _DIGEST_BYTES:
        raise TrustError("the join token is cut off or damaged behind its '.': copy it again, the whole of it")
    return secret, f"{ALGORITHM}:{digest.hex()}"


def context_of(authority: str) -> ssl.SSLContext:
    """Return a context for clients that believes this authority, in PEM, and no other. Raises TrustError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the anchor may be an intermediate authority, or the certificate itself
    try:
        context.load_verify_locations(cadata=authority)
    except (ssl.SSLError, ValueError) as error:
        raise TrustError(f"this is no certificate in PEM: {authority[:40]!r}... ({error})") from error
    return context


def is_loopback(server: str) -> bool:
    """Whether the URL `server` names this machine itself, by an address of loopback or as localhost."""
    host = urlsplit(server).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def travels_readable(server: str) -> bool:
    """Whether keys to the URL `server` travel over a network without encryption."""
    return urlsplit(server).scheme == "http" and not is_loopback(server)


def _first_certificate(text: str) -> str:
    found = re.search(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", text, re.DOTALL)
    if found is None:
        raise ValueError("no certificate")
    return found.group()
