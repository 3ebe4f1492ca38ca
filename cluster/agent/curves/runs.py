"""Event files of several writers, told apart by their folders. Pure."""

from __future__ import annotations

from pathlib import Path

#: Folders of writers that each log a part of the training under the same names.
_PARTS = frozenset({"train", "training", "val", "valid", "validation", "eval", "test", "dev"})


class Runs:
    """Gives each of one rank's folders of event files a prefix for its tags, so that two writers with the same tags stay apart.

    The first folder is the run: its tags stand alone, unless it is called `train`, `val` or the like. Folders below it go by their path
    in it, others by their names."""

    def __init__(self) -> None:
        self._prefixes: dict[Path, str] = {}
        self._main: Path | None = None

    def prefix(self, folder: Path) -> str:
        if folder not in self._prefixes:
            self._prefixes[folder] = self._new(folder)
        return self._prefixes[folder]

    def _new(self, folder: Path) -> str:
        if self._main is None:
            self._main = folder
            return f"{folder.name}/" if folder.name.lower() in _PARTS else ""
        prefix = f"{folder.relative_to(self._main)}/" if self._main in folder.parents else f"{folder.name}/"
        return f"{folder.parent.name}/{prefix}" if prefix in self._prefixes.values() else prefix
