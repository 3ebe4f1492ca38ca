"""The agent's own interpreter and packages: what environments of jobs are built on, and what they must not contradict. Never imports torch."""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import json
import os
import platform
import site
import sys
import sysconfig
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from paceline.cluster.agent.environments.node_package import NodeCommand, find_commands

#: The version of the layout of the folder that is built: another layout is another environment.
LAYOUT = 2
TORCH = "torch"
#: torch's own packages of CUDA: the node's torch has brought them, or does without.
_WITH_TORCH = ("nvidia-", "cuda-", "triton", "pytorch-triton")


@dataclass(frozen=True)
class NodePython:
    """An interpreter and the packages that it finds: name and version, in canonical spelling."""

    executable: str
    version: str
    platform: str
    sites: tuple[str, ...]  # its site-packages
    packages: Mapping[str, str]
    constraints: tuple[str, ...]  # what Paceline itself needs, as lines
    torch_requires: tuple[str, ...] = field(default=())
    commands: tuple[NodeCommand, ...] = field(default=())

    @property
    def torch(self) -> str | None:
        return self.packages.get(TORCH)

    @cached_property
    def identity(self) -> str:
        """Everything here that an environment depends on, in one text."""
        facts = [LAYOUT, self.executable, self.version, self.platform, self.sites, sorted(self.packages.items()), self.constraints]
        return json.dumps(facts)

    def key(self, requirements: tuple[str, ...], *, own_torch: bool) -> str:
        """The name of the environment with these requirements: a hash of their normalised lines, the interpreter, torch, the other packages of
        the node and the platform. The order of requirements does not matter."""
        text = json.dumps([self.identity, sorted(requirements), own_torch])
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def this_python() -> NodePython:
    """The interpreter that the agent runs in."""
    found = {canonicalize_name(each.name): each.version for each in importlib.metadata.distributions() if each.name}
    return NodePython(
        executable=sys.executable,
        version=platform.python_version(),
        platform=sysconfig.get_platform(),
        sites=tuple(path for path in dict.fromkeys([*site.getsitepackages(), *_user_site()]) if os.path.isdir(path)),
        packages={str(name): version for name, version in found.items()},
        constraints=_own_constraints(),
        torch_requires=_requires_of_torch(),
        commands=find_commands(),
    )


def _user_site() -> list[str]:
    return [site.getusersitepackages()] if site.ENABLE_USER_SITE else []


def _requires(package: str) -> list[Requirement]:
    try:
        lines = importlib.metadata.requires(package) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    found = []
    for line in lines:
        try:
            found.append(Requirement(line))
        except InvalidRequirement:
            continue  # metadata of another age, which constrains nothing that we could check
    return found


def _own_constraints() -> tuple[str, ...]:
    """What Paceline needs in its ranks, with their versions: a job that asks for others would break the process that its ranks are forked from."""
    needed = [each for each in _requires("paceline") if each.marker is None or each.marker.evaluate({"extra": "worker"})]
    bounded = [each for each in needed if each.specifier and canonicalize_name(each.name) != TORCH]
    return tuple(sorted(f"{canonicalize_name(each.name)}{each.specifier}" for each in bounded))


def _requires_of_torch() -> tuple[str, ...]:
    needed = [each for each in _requires(TORCH) if each.marker is None or each.marker.evaluate({"extra": ""})]
    return tuple(f"{each.name}{each.specifier}" for each in needed if not canonicalize_name(each.name).startswith(_WITH_TORCH))


def stand_in_wheel(python: NodePython) -> tuple[str, bytes]:
    """A wheel with the name and the version of the node's torch and nothing in it, for the resolver alone: it has no other torch to choose, and says
    which requirement wants one. Returns the file's name and its content."""
    assert python.torch is not None
    name = f"{TORCH}-{python.torch}"
    info, into = f"{name}.dist-info", io.BytesIO()
    needs = "".join(f"Requires-Dist: {line}\n" for line in python.torch_requires)
    with zipfile.ZipFile(into, "w") as archive:
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {TORCH}\nVersion: {python.torch}\n{needs}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: paceline\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return f"{name}-py3-none-any.whl", into.getvalue()
