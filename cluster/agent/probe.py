"""`python -m paceline.cluster.agent.probe DATA`: whether an agent lives that holds this data folder. Exit code 0: it does, 1: it does not.

An agent that has lost its coordinator lives: its ranks go on, and restarting it would gain nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from paceline.cluster.agent.folders import AgentFolder

LOCKS = Path("/proc/locks")


def main(arguments: Sequence[str] | None = None) -> int:
    """Look whether the folder's lock is held."""
    given = sys.argv[1:] if arguments is None else arguments
    if len(given) != 1:
        print("usage: python -m paceline.cluster.agent.probe DATA", file=sys.stderr)
        return 2
    path = AgentFolder(Path(given[0])).agent_lock
    if not path.exists() or not _is_held(path):
        print(f"no agent holds {path}", file=sys.stderr)
        return 1
    return 0


def _is_held(path: Path) -> bool:
    """Whether a process holds the lock of a file. Taking it to find out would keep an agent out that starts at this moment."""
    inode = path.stat().st_ino
    locks = (line.split() for line in LOCKS.read_text().splitlines())
    return any(fields[-3].rpartition(":")[2] == str(inode) for fields in locks if "FLOCK" in fields)


if __name__ == "__main__":
    sys.exit(main())
