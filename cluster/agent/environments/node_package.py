"""The node's packages as one small package that `uv` installs into each environment: where they are, and their programs.

A program of the node (`torchrun`, `accelerate`) starts with the node's interpreter, which does not see a job's packages. Installed from here it starts with
the environment's. uv writes all of it, as the user that ranks run as: this process would follow links that a build has left.
"""

from __future__ import annotations

import importlib.metadata
import io
import re
import zipfile
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from packaging.utils import canonicalize_name

PACKAGE_NAME, FILE_NAME = "paceline-node", "paceline_node-1-py3-none-any.whl"
#: In the environment's site-packages. `addsitedir` and no mere path: packages of the agent that are installed by a .pth of their own are found too.
NODE_PACKAGES = "_paceline_node.pth"
MOST_SCRIPT_BYTES = 1 << 20
LONGEST_FIRST_LINE = 1024
_INFO, _SCRIPTS = "paceline_node-1.dist-info", "paceline_node-1.data/scripts"
_METADATA = f"Metadata-Version: 2.1\nName: {PACKAGE_NAME}\nVersion: 1\nSummary: The place and the programs of the node's own packages\n"
_WHEEL = "Wheel-Version: 1.0\nGenerator: paceline\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_RECORDED_SCRIPT = re.compile(r"^((?:\.\./)+bin/([^/,\n]+)),", re.MULTILINE)
_BY_PYTHON = re.compile(rb"#!\S*/python[0-9.]*[^\S\n]*\n")


@dataclass(frozen=True)
class NodeCommand:
    """A program in Python of one of the node's packages: an object that is called, or a script. `package`: in canonical spelling."""

    name: str
    package: str
    calls: str = ""  # as `torch.distributed.run:main`
    script: bytes = b""  # without its first line


def find_commands() -> tuple[NodeCommand, ...]:
    """The programs of the packages that the agent's interpreter finds."""
    found, packages = dict[str, NodeCommand](), set[str]()
    for package in importlib.metadata.distributions():
        if not package.name or (name := canonicalize_name(package.name)) in packages:
            continue  # another version of it, further back on the path
        packages.add(name)
        for command in _commands_of(package, name):
            found.setdefault(command.name, command)
    return tuple(found.values())


def _commands_of(package: importlib.metadata.Distribution, name: str) -> Iterator[NodeCommand]:
    declared = package.entry_points.select(group="console_scripts")
    yield from (NodeCommand(each.name, name, calls=each.value) for each in declared)
    for place, program in _RECORDED_SCRIPT.findall(package.read_text("RECORD") or ""):
        if program not in declared.names and (script := _below_first_line(str(package.locate_file(place)))):
            yield NodeCommand(program, name, script=script)


def _below_first_line(path: str) -> bytes:
    """What is in a script after the line that says that Python runs it; nothing of any other file."""
    try:
        with open(path, "rb") as file:
            first = file.readline(LONGEST_FIRST_LINE)
            return file.read(MOST_SCRIPT_BYTES) if _BY_PYTHON.fullmatch(first) else b""
    except OSError:
        return b""  # removed since it was installed


def node_package(sites: Iterable[str], commands: Iterable[NodeCommand], without: Collection[str]) -> bytes:
    """The package as a wheel. `sites`: folders of the node's packages. Programs of the packages `without` are left out: the environment has other versions
    of those."""
    ours = [command for command in commands if command.package not in without]
    calls = "".join(f"{each.name} = {each.calls}\n" for each in ours if each.calls)
    files = {
        NODE_PACKAGES: "".join(f"import site; site.addsitedir({folder!r})\n" for folder in sites).encode(),
        f"{_INFO}/METADATA": _METADATA.encode(),
        f"{_INFO}/WHEEL": _WHEEL.encode(),
        f"{_INFO}/entry_points.txt": f"[console_scripts]\n{calls}".encode(),
        **{f"{_SCRIPTS}/{each.name}": b"#!python\n" + each.script for each in ours if not each.calls},
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{_INFO}/RECORD"))
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w") as archive:
        for name, content in (files | {f"{_INFO}/RECORD": record.encode()}).items():
            archive.writestr(name, content)
    return into.getvalue()
