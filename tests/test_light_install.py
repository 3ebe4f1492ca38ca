"""`pip install paceline` without extras has the command line and the coordinator: no module of theirs needs a package that only an extra brings."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
#: Every command, and the coordinator with all of its routes.
IMPORTING = """
import importlib, json, sys
from importlib.machinery import PathFinder

REFUSED = set(json.loads(sys.argv[1]))

class Light(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in REFUSED else super().find_spec(name, path, target)

sys.meta_path[:] = [Light if each is PathFinder else each for each in sys.meta_path]
from paceline.cli.app import COMMANDS
from paceline.cli.local import local_agents
import paceline.api.serve, paceline.api.admin, paceline.client
for entries in COMMANDS.values():
    for place, _ in entries.values():
        importlib.import_module("paceline.cli.commands." + place.partition(":")[0])
print(local_agents.local_agents(None, None, None).agents)
"""


def needed_by(requirements: list[str]) -> set[str]:
    """The distributions that these requirements bring, with all that they need in turn."""
    found: set[str] = set()
    waiting = [Requirement(each) for each in requirements]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in found:
            continue
        found.add(name)
        try:
            further = [Requirement(each) for each in requires(requirement.name) or []]
        except PackageNotFoundError:
            continue
        extras = requirement.extras or {""}
        waiting += [each for each in further if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in extras)]
    return found


def test_the_command_line_and_the_coordinator_need_no_package_of_an_extra() -> None:
    light = needed_by(PROJECT["dependencies"])
    refused = sorted(
        name
        for name, distributions in packages_distributions().items()
        if name != "paceline" and not light & {canonicalize_name(each) for each in distributions}
    )
    assert {"torch", "pynvml", "safetensors"} <= set(refused)
    command = [sys.executable, "-c", IMPORTING, json.dumps(refused)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "2"), done.stderr
