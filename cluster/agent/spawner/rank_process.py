"""Turns a forked child of a shim into a rank: its session, its output, its environment, then its work."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import NoReturn, Protocol

import msgspec

from paceline.cluster.agent import memory_groups
from paceline.cluster.agent.account import Account
from paceline.cluster.agent.children import FAILED_EXIT_CODE, detach, die_with
from paceline.cluster.agent.processes import RANK_SCORE, allow_tracing, compute_in_batches, offer_to_memory_killer, set_tag
from paceline.cluster.agent.spawner_link import Spawn
from paceline.distributed import env
from paceline.location import PACKAGE, ROOT
from paceline.monitoring.files import UnfitFileError, open_to_append, write_durably
from paceline.monitoring.output_stream import output_stream
from paceline.training.link import FailureReport, RankOrder, Result, encode_order
from paceline.training.rank_folder import RankFolder
from paceline.training.warm_start import clash_of, is_installed, leave, leave_checkout


class TrainerModule(Protocol):
    """The module that ranks run, `training.main`."""

    __name__: str

    def preload(self) -> None:
        """Import everything a rank needs. Called once, before any fork: starts no thread and never touches CUDA."""

    def run_rank(self, order: RankOrder) -> int:
        """Run as the rank. Returns the process's exit code."""

    def run_script(self, order: RankOrder, command: Sequence[str]) -> int | None:
        """Run as a rank of the script with this command line. Returns None without effect where the script needs an interpreter of its
        own."""

    def serve_store(self, host: str, listener: socket.socket) -> object:
        """Serve a TCPStore for the ranks of a script on a listening socket, for as long as the returned object is kept."""

    def main(self) -> int:
        """Run as a rank in an interpreter of its own, with the order as standard input. Returns the exit code, with which the caller ends the
        process without clean-up."""


@dataclass(frozen=True)
class ProcessLimits:
    """The limits that a rank is kept to."""

    umask: int
    tag: int  # of the rank and all that it starts
    account: Account | None  # the user that it runs as; None: its spawner's user
    group: Path | None  # its control group; None: that of its spawner
    shielded: bool = False  # SIGTERM is the agent's to handle: it ends no rank of the trainer


def make_output(path: Path, account: Account | None) -> None:
    """Make the file for a rank's output, unless it is there. A link or a pipe in its place, by another process of the ranks' user, is removed."""
    try:
        output = open_to_append(path, 0o600)
    except UnfitFileError:
        path.unlink()
        output = open_to_append(path, 0o600)
    if account is not None:
        os.fchown(output, account.uid, account.gid)
    os.close(output)


def become_rank(spawn: Spawn, trainer: TrainerModule, parent_pid: int, limits: ProcessLimits) -> NoReturn:
    """Run a rank in the child right after the fork; never returns."""
    code = FAILED_EXIT_CODE
    try:
        detach(parent_pid)
        if limits.shielded and not spawn.order.spec.is_script:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        offer_to_memory_killer(RANK_SCORE)
        if spawn.order.world.device == "cpu":
            compute_in_batches()
        set_tag(limits.tag)
        if limits.group is not None:
            memory_groups.enter(limits.group)
        _redirect(Path(spawn.order.folder))
        os.umask(limits.umask)
        if limits.account is not None:
            limits.account.become()
            die_with(parent_pid)
        allow_tracing()
        code = _work(spawn, trainer)
    except SystemExit as end:
        code = leave(end)
    except BaseException:  # noqa: BLE001 - the last frame of the process: nothing may unwind into the spawner's loop
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # on a full disk, or closed, taken away or replaced by the script
                stream.flush()
        os._exit(code)


def _redirect(folder: Path) -> None:
    """Close everything inherited (sockets, locks), and send the output to the rank's file."""
    output = open_to_append(RankFolder.at(folder).output, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    sys.stdout, sys.stderr = output_stream(1), output_stream(2)


def _work(spawn: Spawn, trainer: TrainerModule) -> int:
    os.environ.update(spawn.environment)
    time.tzset()  # TZ may be another one than the spawner's
    if spawn.visible_devices is not None:
        os.environ |= env.visible_devices(spawn.visible_devices)
    leave_checkout()
    refusal = _enter_directory(spawn) or _why_not(spawn)
    if refusal is None and not spawn.container and spawn.order.world.local_rank == 0 and (clash := clash_of(spawn.program)):
        print(f"WARNING {clash}", flush=True)
    if refusal is None and not spawn.fresh:
        code = trainer.run_script(spawn.order, spawn.program) if spawn.program else trainer.run_rank(spawn.order)
        if code is not None:
            return code
    if refusal is None and not spawn.program:
        _hand_over(spawn.order)
    return _refuse(spawn.order, refusal or _execute(spawn.program or _trainer_command(trainer, spawn.order), Path(spawn.order.folder)))


def _enter_directory(spawn: Spawn) -> str | None:
    """Change to the working directory. Returns why that fails, if it does."""
    if spawn.working_directory is None:
        os.chdir(spawn.order.folder)
        return None
    try:
        os.chdir(spawn.working_directory)
    except OSError as error:
        return f"environment.working_directory={spawn.working_directory}: {error.strerror} on this node; create it there or change the job"
    if not spawn.program:
        sys.path.insert(0, spawn.working_directory)
    return None


def _why_not(spawn: Spawn) -> str | None:
    """Why a script cannot start: its file, module or command is not on this node."""
    if spawn.container:
        return None
    path, module, command = (spawn.order.spec.part("script", name) for name in ("path", "module", "command"))
    way_out = f"seen from {os.getcwd()}; set environment.working_directory"
    if path is not None and not os.path.exists(path):
        if os.path.isabs(path):
            return f"script.path={path}: no such file on this node; put it there, or send its folder along with --workdir"
        return f"script.path={path}: no such file on this node, {way_out} or give an absolute path"
    top = (module or "").partition(".")[0]
    if top and spawn.program[0] == sys.executable and PathFinder.find_spec(top, [os.getcwd(), *env.python_path(), *sys.path]) is None:
        return f"script.module={module}: no module {top!r} on this node, {way_out} or install it there"
    if command and shutil.which(command[0]) is None:
        return f"script.command={command[0]}: no such program on this node, {way_out}, install it there or give an absolute path"
    return None


def _trainer_command(trainer: TrainerModule, order: RankOrder) -> tuple[str, ...]:
    """The command of an interpreter that becomes a rank by itself, with this one's packages behind its own: `paceline` is ours whatever is on its path, as
    in a forked one."""
    start = f"import os, sys; sys.path[0] = {str(ROOT)!r}; sys.path += [each for each in {sys.path!r} if each not in sys.path]; from {trainer.__name__} import main; os._exit(main())"
    return (order.interpreter.python or sys.executable, "-u", "-c", start)


def _hand_over(order: RankOrder) -> None:
    """Hand text to the program that is executed next, as its standard input: a file without a name, which ends there."""
    file = os.memfd_create("order")
    with open(file, "wb", closefd=False) as writer:
        writer.write(encode_order(order))
    os.lseek(file, 0, os.SEEK_SET)
    os.dup2(file, 0)
    os.close(file)


def _execute(program: tuple[str, ...], folder: Path) -> str:
    """Replace this process, of the rank with this folder, by a program; returns only with the reason why that failed."""
    for number in (signal.SIGPIPE, signal.SIGINT):  # Python ignores the one, and exec would pass that on
        signal.signal(number, signal.SIG_DFL)
    try:
        if not is_installed():
            env.append_python_path(_folder_of_package(RankFolder.at(folder).package))
        os.execvp(program[0], program)
    except OSError as error:
        return f"cannot execute {program[0]}: {error.strerror}"


def _folder_of_package(folder: Path) -> Path:
    """Make a folder that holds nothing but a link to this package, and return it. A checkout also has packages such as `distributed`, which would
    hide those that are installed under the same names."""
    folder.mkdir(exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (folder / PACKAGE.name).symlink_to(PACKAGE)
    return folder


def _refuse(order: RankOrder, message: str) -> int:
    print(message, file=sys.stderr)
    failure = FailureReport(
        kind="invalid_input", rank=order.world.rank, message=message, time=time.time(), exit_code=FAILED_EXIT_CODE, last_lines=(message,)
    )
    result = Result(outcome="failed", step=0, failure=failure)
    write_durably(RankFolder.at(Path(order.folder)).result, msgspec.json.encode(result))
    return FAILED_EXIT_CODE
