"""Where a folder's code comes from, as git tells it: commit, branch, and the files that differ from the commit."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_SECONDS = 10.0
#: As many as a job spec takes, each as long as it takes.
MOST_CHANGED, MOST_PATH = 100, 300
_BRANCH, _COMMIT = "# branch.head ", "# branch.oid "
_NO_COMMIT, _NO_BRANCH = "(initial)", "(detached)"


@dataclass(frozen=True)
class GitFacts:
    """A checkout. `uncommitted`: the first hundred files below the folder that differ from the commit, new ones among them; names that are too
    long for a spec are cut."""

    commit: str | None = None
    branch: str | None = None
    uncommitted: tuple[str, ...] = ()


def git_facts(folder: Path) -> GitFacts | None:
    """Ask git about a folder. None: it lies in no repository, or git is not installed or does not answer."""
    command = ["git", "-C", str(folder), "status", "--porcelain=v2", "--branch", "--untracked-files=all", "-z", "--", "."]
    try:
        done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None
    return parse_status(done.stdout.decode(errors="replace"))


def parse_status(text: str) -> GitFacts:
    """Parse the output of `git status --porcelain=v2 --branch -z`: see "Porcelain Format Version 2" in git-status(1)."""
    commit, branch, changed = None, None, list[str]()
    entries = iter(text.split("\0"))
    for entry in entries:
        if entry.startswith(_COMMIT):
            commit = _unless(entry.removeprefix(_COMMIT), _NO_COMMIT)
        elif entry.startswith(_BRANCH):
            branch = _unless(entry.removeprefix(_BRANCH), _NO_BRANCH)
        elif entry[:2] in ("1 ", "u ", "? ", "2 "):
            fields = {"1": 8, "u": 10, "?": 1, "2": 9}[entry[0]]
            changed.append(entry.split(" ", fields)[-1])
            if entry[0] == "2":
                next(entries, None)  # the name that it was renamed from
    return GitFacts(commit, branch and branch[:MOST_PATH], tuple(map(_shortened, changed[:MOST_CHANGED])))


def _shortened(name: str) -> str:
    return name if len(name) <= MOST_PATH else f"{name[: MOST_PATH - 3]}..."


def _unless(value: str, none: str) -> str | None:
    return None if value == none else value
