"""The messages between an agent and its spawner over DATA's `spawner.sock`, one JSON object a line.

    agent -> spawner:   Spawn, Move, Terminate, ServeStore, EndStore, Shutdown
    spawner -> agent:   ProcessList, on connection and whenever it changes

A rank that has left the list has its `exit.json`: the spawner writes it first.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from paceline.cluster.protocol import GenerationKey, RankKey
from paceline.monitoring.lines import encode_line
from paceline.training.link import ExitCode, RankOrder
from paceline.training.spec.stored import spec_from_json, spec_to_json

#: What a spawner is started with unless it is told otherwise.
DEFAULT_TRAINER, DEFAULT_ORPHAN_SECONDS = "paceline.training.main", 900.0


class Spawn(msgspec.Struct, frozen=True, kw_only=True, tag="spawn"):
    """Start a rank: fork into the trainer, or run `program`, a command line, where the job is a script."""

    order: RankOrder
    environment: dict[str, str]
    program: tuple[str, ...] = ()
    fresh: bool = False  # to be executed; else the forked process itself runs the program, or the trainer
    working_directory: str | None = None
    container: bool = False  # `program` runs the script elsewhere: its files need not be here
    #: CUDA_VISIBLE_DEVICES of a rank of the trainer; None: as the spawner has it. A field of its own, since the trainer in a spawner of the
    #: version before counts on seeing all cards.
    visible_devices: str | None = None


class Move(msgspec.Struct, frozen=True, kw_only=True, tag="move"):
    """A living rank takes its place in a newer generation: the process is known by that key from now on, and its end is reported in that
    folder.

    That holds for a process that has ended already, too."""

    key: RankKey
    folder: str  # its folder so far
    order: RankOrder


class Terminate(msgspec.Struct, frozen=True, kw_only=True, tag="terminate"):
    """SIGTERM to every program in the rank's session, SIGKILL to all of its processes after the grace. Repeating it never lengthens the
    grace."""

    key: RankKey
    grace_seconds: float


class ServeStore(msgspec.Struct, frozen=True, kw_only=True, tag="serve_store"):
    """Serve the rendezvous store of a script's ranks; the process list gives its port. Harmless the second time."""

    key: GenerationKey
    host: str
    ports: tuple[int, int] | None = None  # the range, its end not included, of which one is taken


class EndStore(msgspec.Struct, frozen=True, kw_only=True, tag="end_store"):
    """End a store at once. Harmless the second time."""

    key: GenerationKey


class Shutdown(msgspec.Struct, frozen=True, kw_only=True, tag="shutdown"):
    """Terminate all ranks, then exit. Each has its own grace, of at most `grace_seconds`."""

    grace_seconds: float


class ServedStore(msgspec.Struct, frozen=True, kw_only=True):
    """The store of a script's ranks, or why it cannot be served."""

    key: GenerationKey
    port: int | None = None
    error: str = ""


class ProcessList(msgspec.Struct, frozen=True, kw_only=True, tag="roster"):
    """The ranks that are alive, and the stores that are served."""

    spawner_pid: int
    ranks: tuple[tuple[RankKey, int], ...]  # key, pid
    suspended: tuple[RankKey, ...] = ()  # those whose process is stopped by a signal
    stores: tuple[ServedStore, ...] | None = None  # None: of a spawner that knows no ServeStore
    runs_interpreters: bool = False  # ranks of the trainer run the interpreter of their order; one of the version before knows none


class ExitStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `RankFolder.exit_status`: the result of waitpid. Neither code nor signal: the process could not be started.

    It lies in the rank's folder, so what waitpid cannot have said is not decoded."""

    pid: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    exit_code: ExitCode | None
    signal: Annotated[str, msgspec.Meta(pattern=r"^SIG[A-Z0-9+-]{1,20}\Z")] | None
    time: float
    out_of_memory: bool = False
    ordered: bool = False  # we had told it to end, and it did not crash instead
    killed_after: float | None = None  # seconds after we had: it did not end by itself
    unreadable: bool = False  # the agent's word: it ended, and what waitpid said of it was damaged


ToSpawner = Spawn | Move | Terminate | ServeStore | EndStore | Shutdown

_to_spawner: msgspec.json.Decoder[ToSpawner] = msgspec.json.Decoder(ToSpawner, dec_hook=spec_from_json)
_process_list = msgspec.json.Decoder(ProcessList)


def encode_to_spawner(message: ToSpawner) -> bytes:
    """The message as a line."""
    return encode_line(message, spec_to_json)


def decode_to_spawner(line: bytes) -> ToSpawner:
    return _to_spawner.decode(line)


def decode_process_list(line: bytes) -> ProcessList:
    return _process_list.decode(line)
