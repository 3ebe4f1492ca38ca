"""A user's folder may have a module called `paceline`, or one of the name of a module that is loaded already. Pure but for looking at folders."""

from __future__ import annotations

import os
from pathlib import Path

OURS = "paceline"
_MODULE, _PACKAGE = f"{OURS}.py", f"{OURS}/__init__.py"


def importable(folder: Path) -> set[str]:
    """Names of the modules and packages that Python finds in `folder`; none where it cannot be read."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return set()
    modules = {entry.name.partition(".")[0] for entry in entries if entry.name.endswith((".py", ".so"))}
    return modules | {entry.name for entry in entries if os.path.exists(os.path.join(entry.path, "__init__.py"))}


def why_ours_wins(folder: str | None) -> str | None:
    """Return why an entrypoint does not import the `paceline` of its own folder, with the way out; None if the folder has none."""
    found = _own(folder)
    return f"{found} has Paceline's name: an entrypoint imports Paceline's; rename it, or run it as a script" if found else None


def why_yours_wins(folder: str) -> str | None:
    """Return why a script imports the `paceline` of the folder that comes first on its `sys.path`, with the way out; None if it has
    none."""
    found = _own(folder)
    return f"{found} has Paceline's name: the script imports yours; rename it if the script is to import Paceline's" if found else None


def _own(folder: str | None) -> str | None:
    """Its path, if there is one."""
    return (
        next((os.path.join(folder, file) for file in (_MODULE, _PACKAGE) if os.path.exists(os.path.join(folder, file))), None)
        if folder
        else None
    )
