"""Resolves a job spec's relative paths: from its own folder, or from the one in which the command was typed; and reports missing files."""

from __future__ import annotations

import difflib
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from paceline.cli.errors import UsageProblem
from paceline.cli.output import note
from paceline.cli.settings import LOOPBACK, working_directory

if TYPE_CHECKING:
    from paceline.cli.client import Client

#: Names that are offered in the place of one that is not there.
MOST_NEAR = 3
Spec = dict[str, Any]


def in_its_folder(spec: Spec, file: str) -> Spec:
    """The spec that was read from `file` ('-': stdin), with `environment.working_directory` as an absolute path.

    A relative one, and that of a relative script without any, is found from the folder of `file`; from the working directory where it is not there.
    Raises UsageProblem where a script is in neither. What is no path is left for the coordinator to refuse."""
    environment, given = spec.get("environment") or {}, _working_directory(spec)
    if not isinstance(environment, dict) or (given is not None and os.path.isabs(given)):
        return spec
    folders = list(dict.fromkeys([*([] if file == "-" else [Path(os.path.abspath(file)).parent]), working_directory()]))
    found = _folder(given, folders) if given is not None else _folder_of_script(spec, folders)
    if found is None:
        return spec
    note(f"note: environment.working_directory is {found}")
    return {**spec, "environment": {**environment, "working_directory": str(found)}}


def require_files(client: Client, spec: Spec) -> None:
    """Report a script that is not on this machine: an error where all nodes are on it, else a warning, since they may have other
    folders."""
    missing = why_missing(spec)
    if missing is None:
        return
    message, hint = missing
    if _all_nodes_are_here(client):
        raise UsageProblem(message, hint)
    note(f"warning: {message}, on this machine; every node needs it")


def why_missing(spec: Spec) -> tuple[str, str | None] | None:
    """The parts of a spec with absolute paths that are not on this machine, with the way out; None: everything exists."""
    folder, path = _working_directory(spec), _script_path(spec)
    if folder is not None and os.path.isabs(folder) and not os.path.isdir(folder):
        return f"environment.working_directory: there is no folder {folder}", _near(Path(folder))
    if path is None or not os.path.isabs(os.path.join(folder or "", path)):
        return None
    file = Path(os.path.join(folder or "", path))
    if os.path.exists(file):
        return None
    seen = "" if os.path.isabs(path) else f", seen from {folder}"
    return f"script.path: there is no {path}{seen}", _near(file)


def near_names(file: Path) -> list[str]:
    """Names in the folder of `file` that may have been meant."""
    try:
        names = os.listdir(file.parent)
    except OSError:
        return []
    return difflib.get_close_matches(file.name, names, MOST_NEAR)


def _near(file: Path) -> str | None:
    names = near_names(file)
    return f"{file.parent} has {', '.join(names)}" if names else None


def _folder(given: str, folders: Sequence[Path]) -> Path:
    """The first folder that exists; else what the first would be."""
    expanded = os.path.expanduser(given)
    places = [Path(os.path.normpath(folder / expanded)) for folder in folders]
    return next((place for place in places if place.is_dir()), places[0])


def _folder_of_script(spec: Spec, folders: Sequence[Path]) -> Path | None:
    path = _script_path(spec)
    if path is None or os.path.isabs(path):
        return None
    for folder in folders:
        if (folder / path).exists():
            return folder
    looked = " and ".join(map(str, folders))
    names = dict.fromkeys(str((folder / path).parent / name) for folder in folders for name in near_names(folder / path))
    hint = (
        f"near it: {', '.join(names)}"
        if names
        else "a script that only the nodes have: set environment.working_directory to its folder there"
    )
    raise UsageProblem(f"script.path: there is no {path}; looked in {looked}", hint)


def _working_directory(spec: Spec) -> str | None:
    return _text(spec, "environment", "working_directory")


def _script_path(spec: Spec) -> str | None:
    return _text(spec, "script", "path")


def _text(spec: Spec, part: str, field: str) -> str | None:
    """The text of a field; None also where the coordinator will refuse its value."""
    fields = spec.get(part)
    value = fields.get(field) if isinstance(fields, dict) else None
    return value if isinstance(value, str) and value and "\0" not in value else None


def _all_nodes_are_here(client: Client) -> bool:
    """Whether all nodes are on this machine, by the names of their hosts: behind a tunnel the coordinator only looks as if it were on
    this machine."""
    if urlsplit(client.settings.url).hostname not in LOOPBACK:
        return False
    nodes = client.pages("/cluster/nodes")
    return bool(nodes) and all(node.get("hostname") == platform.node() for node in nodes)
