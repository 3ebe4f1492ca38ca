"""Time-outs that job specs are checked against as well. No torch."""

from __future__ import annotations

#: How long a collective waits for a silent peer; a dead peer closes its sockets and is noticed at once.
COLLECTIVE_SECONDS = 1800
