"""What specs are checked against, too: no torch in here."""

from __future__ import annotations

#: For a peer that is silent rather than dead; a dead one closes its sockets and is noticed at once.
COLLECTIVE_SECONDS = 1800
