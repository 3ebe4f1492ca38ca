"""Checks a job's folder, where that folder is on the coordinator's machine: for a missing script, and for names of Paceline's own.

Only the existence of a file is reported, and only for the names that the spec itself gives and for Paceline's own: no listing, no
content. So a member, who may run code on the nodes, learns next to nothing by it, and a viewer gets nothing at all.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from paceline.api.core.daemon_calls import AllCallsStuckError, DaemonCalls
from paceline.db.models.nodes import NodeRow
from paceline.training.schema.script import Script
from paceline.training.spec.clashes import why_ours_wins, why_yours_wins
from paceline.training.spec.job import JobSpec
from paceline.training.spec.workload import EntrypointWorkload, ScriptWorkload

#: How many looks may be stuck in file systems that do not answer.
MOST_LOOKS = 4


@dataclass
class FolderLooks:
    """Looks at folders: a file system that hangs must hold up neither a request nor the end of the process."""

    limit_seconds: float = 1.0
    look: Callable[[JobSpec, bool], list[str]] = field(default_factory=lambda: look_at)
    _calls: DaemonCalls = field(default_factory=lambda: DaemonCalls(MOST_LOOKS))

    async def warnings(self, spec: JobSpec, nodes: Sequence[NodeRow]) -> list[str]:
        """Warnings about the job's folder; none where it is not on this machine. `nodes`: those that are present."""
        if not names_a_file(spec):
            return []
        all_here = _all_here(nodes)
        try:
            return await self._calls.run(lambda: self.look(spec, all_here), self.limit_seconds)
        except AllCallsStuckError:
            return []
        except TimeoutError:
            return [
                f"the job's folder did not answer within {self.limit_seconds:g} s on the coordinator's machine: a file system may hang there"
            ]


def look_at(spec: JobSpec, all_here: bool) -> list[str]:
    """Look at a job's folder. Blocks as long as the file system does. `all_here`: every node is on this machine, so that a file which is
    not here is nowhere."""
    folder = spec.environment.working_directory
    if folder is not None and _is_gone(folder):
        return [f"environment.working_directory={folder} is not there, on the machine that all nodes are on"] if all_here else []
    match spec.workload:
        case EntrypointWorkload():
            return _listed(why_ours_wins(folder))
        case ScriptWorkload(Script(path=str(path))):
            return _look_at_script(path, folder, all_here)
        case ScriptWorkload(Script(module=str())) if folder:
            return _listed(why_yours_wins(folder))
    return []


def _look_at_script(path: str, folder: str | None, all_here: bool) -> list[str]:
    if folder is None and not os.path.isabs(path):
        return [f"script.path={path} is relative, and the ranks start in an empty folder of their own: set environment.working_directory"]
    file = os.path.join(folder or "", path)
    if not _is_gone(file):
        return _listed(why_yours_wins(os.path.dirname(file)))
    seen = "" if os.path.isabs(path) else f", seen from {folder},"
    is_known = all_here or os.path.isdir(folder or os.path.dirname(file))
    return [f"script.path={path} is not there{seen} on the coordinator's machine; every node needs it"] if is_known else []


def _listed(warning: str | None) -> list[str]:
    return [warning] if warning else []


def names_a_file(spec: JobSpec) -> bool:
    """Whether the spec names a file to look at: code that was sent along is nowhere but in its bundle."""
    if spec.environment.code is not None:
        return False
    match spec.workload:
        case ScriptWorkload(Script(path=str())):
            return True
    return spec.environment.working_directory is not None


def _all_here(nodes: Sequence[NodeRow]) -> bool:
    here = platform.node()
    return bool(nodes) and all((node.inventory or {}).get("hostname") == here for node in nodes)


def _is_gone(path: str) -> bool:
    """Whether a file certainly does not exist: one that this process may not look at may well be there for a rank."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False
