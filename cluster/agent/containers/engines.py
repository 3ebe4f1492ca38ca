"""Container engines, as one small interface: the command line that runs a rank in an image, and the one that ends what is left of it.

A rank in a container is a rank like any other: it keeps the node's network, process numbers and shared memory, so that ranks of one node still find each
other (NCCL and gloo talk through /dev/shm), and it runs as the user that ranks run as. Values of variables never stand in a command line, which every
user of the machine can read: the engine is told their names, and takes the values from its own environment.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

_SCHEME = "docker://"


@dataclass(frozen=True)
class ContainerMount:
    """A folder or file of the node, and where the container sees it."""

    source: str
    target: str
    read_only: bool = False

    @classmethod
    def parse(cls, text: str) -> ContainerMount:
        """Parse SOURCE, SOURCE:TARGET or SOURCE:TARGET:ro."""
        parts = text.removesuffix(":ro").split(":")
        return cls(parts[0], parts[-1], text.endswith(":ro"))

    def __str__(self) -> str:
        return f"{self.source}:{self.target}{':ro' if self.read_only else ''}"


@dataclass(frozen=True)
class ContainerRun:
    """A rank to be run in an image."""

    name: str
    image: str
    command: tuple[str, ...]
    directory: str  # where it starts, inside
    variables: tuple[str, ...]  # names; the engine has the values in its environment
    mounts: tuple[ContainerMount, ...]
    uid: int
    gid: int
    gpus: tuple[str, ...] = ()  # UUIDs; none: no card is shown


class ContainerEngine(Protocol):
    """One engine. Its command lines are pure; nothing is run here."""

    @property
    def name(self) -> str:
        """The program on the PATH."""

    def probe(self) -> tuple[str, ...]:
        """A command that succeeds where the engine can run containers for this user, and ends within seconds."""

    def run(self, run: ContainerRun) -> tuple[str, ...]:
        """The command that runs a rank, passes signals on to it, and ends with its exit code."""

    def end(self, name: str) -> tuple[str, ...] | None:
        """The command that removes what a killed rank has left. None: its processes are the rank's own, and end with it."""


@dataclass(frozen=True)
class Docker:
    name: str = "docker"

    def probe(self) -> tuple[str, ...]:
        return (self.name, "info", "--format", "{{.ServerVersion}}")

    def run(self, run: ContainerRun) -> tuple[str, ...]:
        gpus = ("--gpus", f'"device={",".join(run.gpus)}"') if run.gpus else ()  # with quotes: the value is read as CSV
        return (self.name, *_run_words(run), *gpus, *_what(run))

    def end(self, name: str) -> tuple[str, ...] | None:
        return (self.name, "rm", "--force", "--volumes", name)


@dataclass(frozen=True)
class Podman:
    name: str = "podman"
    rootless: bool = False

    def probe(self) -> tuple[str, ...]:
        return (self.name, "info", "--format", "{{.Version.Version}}")

    def run(self, run: ContainerRun) -> tuple[str, ...]:
        own = ("--userns=keep-id",) if self.rootless else ()  # so that files of the rank belong to its user outside, too
        gpus = _each("--device", (f"nvidia.com/gpu={uuid}" for uuid in run.gpus))
        return (self.name, *_run_words(run), *own, "--security-opt=label=disable", *gpus, *_what(run))

    def end(self, name: str) -> tuple[str, ...] | None:
        return (self.name, "rm", "--force", "--ignore", "--volumes", "--time=0", name)


@dataclass(frozen=True)
class Apptainer:
    """Apptainer, once Singularity: the process in the container is a child of the rank's, as the same user, with the node's network, and it has the
    rank's variables."""

    name: str = "apptainer"

    def probe(self) -> tuple[str, ...]:
        return (self.name, "version")

    def run(self, run: ContainerRun) -> tuple[str, ...]:
        image = run.image if run.image.startswith("/") or "://" in run.image else f"{_SCHEME}{run.image}"
        gpus = ("--nv",) if run.gpus else ()
        binds = _each("--bind", map(str, run.mounts))
        return (self.name, "exec", "--no-home", "--pwd", run.directory, *binds, *gpus, image, *run.command)

    def end(self, name: str) -> tuple[str, ...] | None:
        return None


def _run_words(run: ContainerRun) -> tuple[str, ...]:
    """What docker and podman have in common. `--init`: as process 1 a program would ignore SIGTERM."""
    return (
        "run",
        "--rm",
        "--init",
        "--sig-proxy=true",
        f"--name={run.name}",
        "--network=host",
        "--ipc=host",
        "--pid=host",
        "--ulimit=memlock=-1",
        f"--user={run.uid}:{run.gid}",
        f"--workdir={run.directory}",
        *_each("--env", run.variables),
        *_each("--volume", map(str, run.mounts)),
    )


def _what(run: ContainerRun) -> tuple[str, ...]:
    program, *arguments = run.command
    return (f"--entrypoint={program}", run.image.removeprefix(_SCHEME), *arguments)


def _each(option: str, values: Iterable[str]) -> tuple[str, ...]:
    return tuple(word for value in values for word in (option, value))
