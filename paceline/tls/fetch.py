"""Fetches the certificate of a coordinator's own authority: over a connection that is not believed yet, and so nothing is sent there."""

from __future__ import annotations

import httpx

from paceline.tls.trust import AUTHORITY_PATH, TrustError, fingerprint_of, require_fingerprint

TIMEOUT_SECONDS = 10.0
MOST_BYTES = 64 << 10


def fetch_authority(server: str, expected: str | None) -> str:
    """Return the authority of `server`, an https URL, as PEM. With `expected`, only one of that fingerprint; without, the caller has to
    compare. Raises TrustError, or httpx.HTTPError where there is no answer."""
    with httpx.Client(base_url=server, timeout=TIMEOUT_SECONDS, verify=False) as http, http.stream("GET", AUTHORITY_PATH) as response:
        if response.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
            response.raise_for_status()
        content = b""
        for piece in response.iter_bytes():
            content += piece
            if len(content) > MOST_BYTES:
                raise TrustError(f"{server} answers with more than {MOST_BYTES} bytes where its authority's certificate should be")
        if not response.is_success:
            raise TrustError(
                f"{server} has no authority of its own to show ({response.status_code}): its certificate is one that this machine should know; "
                "PACELINE_CA_FILE or --ca names another authority"
            )
    authority = content.decode("ascii", errors="replace")
    fingerprint_of(authority)
    if expected is not None:
        require_fingerprint(authority, expected, server)
    return authority
