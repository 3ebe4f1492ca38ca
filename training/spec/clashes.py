"""Names that a user's folder may share with Paceline's own packages, or with modules that are loaded already. Pure but for listing folders."""

from __future__ import annotations

import os
from pathlib import Path

#: Paceline's top-level packages and modules.
OURS = frozenset({"api", "cli", "cluster", "db", "distributed", "monitoring", "paceline", "parallelism", "scripts", "tests", "training"})


def importable(folder: Path) -> set[str]:
    """Names of the modules and packages that Python finds in `folder`; none where it cannot be read."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return set()
    modules = {entry.name.partition(".")[0] for entry in entries if entry.name.endswith((".py", ".so"))}
    return modules | {entry.name for entry in entries if os.path.exists(os.path.join(entry.path, "__init__.py"))}


def why_ours_win(folder: str | None) -> str | None:
    """What an entrypoint's user has to know of a folder with packages of Paceline's names; None: it has none."""
    names = sorted(OURS & importable(Path(folder))) if folder else []
    if not names:
        return None
    listed, verb = ", ".join(names), "is a name" if len(names) == 1 else "are names"
    return f"{folder} has {listed}, which {verb} of Paceline's own: an entrypoint imports Paceline's; rename them, or run it as a script"
