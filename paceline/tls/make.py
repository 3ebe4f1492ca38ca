"""`python -m paceline.tls.make FOLDER NAME...`: an authority and a server's certificate for these names, for a proxy in front of coordinators.

What is there and good stays; a certificate that ends within 30 days or lacks a name is made anew. Prints the authority's fingerprint.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from paceline.tls.authority import CertificateFiles, ensure_certificate
from paceline.tls.trust import TrustError, fingerprint_of

USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Make or renew the files. Returns 1 where they cannot be."""
    given = sys.argv[1:] if arguments is None else arguments
    if len(given) < 2 or given[0].startswith("-"):
        print("usage: python -m paceline.tls.make FOLDER NAME...", file=sys.stderr)
        return USAGE
    try:
        ensure_certificate(Path(given[0]), given[1:], datetime.now(UTC))
        print(fingerprint_of(CertificateFiles(Path(given[0])).authority.read_text()))
    except (TrustError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
