"""`python -m paceline.api.probe [URL]`: whether the coordinator of this container answers. Exit code 0: it does, 1: it does not.

It asks over loopback, plain first and then over TLS, whose certificate it does not check: it is its own.
"""

from __future__ import annotations

import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence

HERE = ("http://127.0.0.1:8000/readyz", "https://127.0.0.1:8000/readyz")
TIMEOUT_SECONDS = 4.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask the addresses in turn. Prints why none of them answers."""
    reasons = []
    for url in arguments or HERE:
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS, context=_own()) as answer:
                if answer.status == 200:
                    return 0
                reasons.append(f"{url}: {answer.status}")
        except (urllib.error.URLError, OSError, ValueError) as error:
            reasons.append(f"{url}: {error}")
    print("\n".join(reasons), file=sys.stderr)
    return 1


def _own() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
