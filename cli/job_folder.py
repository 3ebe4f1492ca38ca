"""Resolves a job spec's relative paths: from its own folder, or from the one in which the command was typed; and reports missing files."""

from __future__ import annotations

import difflib
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from paceline.cli.errors import ApiProblemError, UsageProblem
from paceline.cli.render.output import note
from paceline.cli.settings import LOOPBACK, working_directory

if TYPE_CHECKING:
    from paceline.cli.client import RestClient

#: Names that are offered in the place of one that is not there.
MOST_NEAR = 3
Spec = dict[str, Any]


class MissingFile(NamedTuple):
    """A file or folder of a spec that is not there, and the way out. `certain`: wherever the nodes are, no rank will find it."""

    field: str
    what: str
    hint: str | None
    certain: bool = False

    @property
    def message(self) -> str:
        return f"{self.field}: {self.what}"


def in_its_folder(spec: Spec, file: str) -> Spec:
    """The spec that was read from `file` ('-': stdin, or no file), with `environment.working_directory` as an absolute path, and a script in the home too.

    A relative one, and that of a relative script or an entrypoint's module without any, is found from the folder of `file`; from the working directory
    where it is not there. A module that is in neither is one that the nodes have installed.
    A script that is in neither is left for `require_files`, and what is no path for the coordinator to refuse."""
    path = script_path(spec)
    if path is not None and path.startswith("~"):
        spec = {**spec, "script": {**spec["script"], "path": os.path.expanduser(path)}}
    environment, given = spec.get("environment") or {}, _working_directory(spec)
    if not isinstance(environment, dict) or (given is not None and os.path.isabs(given)) or _has_code(spec):
        return spec
    found = _folder(given, _folders(file)) if given is not None else _folder_of_code(spec, _folders(file))
    if found is None:
        return spec
    note(f"note: environment.working_directory is {found}")
    return {**spec, "environment": {**environment, "working_directory": str(found)}}


def require_files(client: RestClient, spec: Spec, file: str) -> None:
    """Report a script that is not on this machine: an error where all nodes are on it, beside whatever else the coordinator refuses; a
    warning where nodes may have other folders. `file`: where the spec was read from."""
    missing = why_missing(spec, file)
    if missing is None:
        return
    if not missing.certain and not _all_nodes_are_here(client):
        note(f"warning: {missing.message}, on this machine; every node needs it")
        return
    try:
        client.create("/training/plan", spec)
    except ApiProblemError as error:
        if error.code == "invalid_spec":
            raise error.with_field(f"/{missing.field.replace('.', '/')}", missing.what, missing.hint) from None
    raise UsageProblem(missing.message, missing.hint)


def why_missing(spec: Spec, file: str) -> MissingFile | None:
    """The first part of a spec that is not on this machine; None: everything is, or only the nodes can tell."""
    folder, path = _working_directory(spec), script_path(spec)
    if folder is not None and os.path.isabs(folder) and not os.path.isdir(folder):
        return MissingFile("environment.working_directory", f"there is no folder {folder}", _near(Path(folder)))
    if path is None or _has_code(spec):
        return None
    if not os.path.isabs(os.path.join(folder or "", path)):
        return _script_in_no_folder(path, _folders(file)) if folder is None else None
    if os.path.exists(os.path.join(folder or "", path)):
        return None
    seen = "" if os.path.isabs(path) else f", seen from {folder}"
    return MissingFile("script.path", f"there is no {path}{seen}", _near(Path(folder or "", path)))


def _script_in_no_folder(path: str, folders: Sequence[Path]) -> MissingFile:
    names = dict.fromkeys(str((folder / path).parent / name) for folder in folders for name in near_names(folder / path))
    way_out = "a script that only the nodes have: set environment.working_directory to its folder there"
    hint = f"near it: {', '.join(names)}" if names else way_out
    return MissingFile("script.path", f"there is no {path}; looked in {' and '.join(map(str, folders))}", hint, certain=True)


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


def _folders(file: str) -> list[Path]:
    """The folders from which the relative paths of the spec in `file` are found, in this order."""
    return list(dict.fromkeys([*([] if file == "-" else [Path(os.path.abspath(file)).parent]), working_directory()]))


def _folder(given: str, folders: Sequence[Path]) -> Path:
    """The first folder that exists; else what the first would be."""
    expanded = os.path.expanduser(given)
    places = [Path(os.path.normpath(folder / expanded)) for folder in folders]
    return next((place for place in places if place.is_dir()), places[0])


def _folder_of_code(spec: Spec, folders: Sequence[Path]) -> Path | None:
    path = script_path(spec)
    if path is not None and os.path.isabs(path):
        return None
    names = _module_files(spec) if path is None else [path]
    return next((folder for folder in folders if any((folder / name).exists() for name in names)), None)


def _module_files(spec: Spec) -> list[str]:
    """The files of which one is the module of the spec's entrypoint, seen from the folder that has to be on the path."""
    entrypoint = spec.get("entrypoint")
    module = entrypoint.partition(":")[0].replace(".", "/") if isinstance(entrypoint, str) and "\0" not in entrypoint else ""
    return [f"{module}.py", f"{module}/__init__.py"] if module.strip("/") == module != "" else []


def _working_directory(spec: Spec) -> str | None:
    return _text(spec, "environment", "working_directory")


def script_path(spec: Spec) -> str | None:
    """Return the path of the spec's script; None also where the coordinator will refuse its value."""
    return _text(spec, "script", "path")


def _has_code(spec: Spec) -> bool:
    """Whether the spec names code that was sent before: its script is in there."""
    environment = spec.get("environment")
    return isinstance(environment, dict) and environment.get("code") is not None


def _text(spec: Spec, part: str, field: str) -> str | None:
    """The text of a field; None also where the coordinator will refuse its value."""
    fields = spec.get(part)
    value = fields.get(field) if isinstance(fields, dict) else None
    return value if isinstance(value, str) and value and "\0" not in value else None


def _all_nodes_are_here(client: RestClient) -> bool:
    """Whether all nodes are on this machine, by the names of their hosts: behind a tunnel the coordinator only looks as if it were on
    this machine."""
    if urlsplit(client.settings.url).hostname not in LOOPBACK:
        return False
    nodes = client.pages("/cluster/nodes")
    return bool(nodes) and all(node.get("hostname") == platform.node() for node in nodes)
