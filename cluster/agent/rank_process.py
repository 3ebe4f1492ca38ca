"""From a forked child of the spawner to a rank: its session, its output, its environment, then its work."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Protocol

import msgspec

from cluster.agent import memory_groups
from cluster.agent.account import Account
from cluster.agent.processes import PR_SET_PDEATHSIG, offer_to_memory_killer, prctl
from cluster.agent.spawner_link import Spawn
from distributed import env
from monitoring.files import write_durably
from training.link import FailureReport, RankFolder, RankOrder, Result

FAILED_EXIT_CODE = 1
_ROOT = Path(__file__).parents[2]  # where scripts import `paceline` from
_RESET_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Trainer(Protocol):
    """The module that ranks run, `training.main`."""

    def preload(self) -> None:
        """Import everything a rank needs. Called once, before any fork: starts no thread and never touches CUDA."""

    def run_rank(self, order: RankOrder) -> int:
        """Be the rank; the process's exit code."""


@dataclass(frozen=True)
class Limits:
    """What a rank is kept to."""

    umask: int
    score: int  # for the kernel's out-of-memory killer
    account: Account | None  # whom it runs as; None: its spawner's user
    group: Path | None  # its control group; None: that of its spawner


def become_rank(spawn: Spawn, trainer: Trainer, spawner_pid: int, limits: Limits) -> NoReturn:
    """Called in the child right after the fork; never comes back."""
    code = FAILED_EXIT_CODE
    try:
        _detach(spawner_pid)
        offer_to_memory_killer(limits.score)
        if limits.group is not None:
            memory_groups.enter(limits.group)
        _redirect(Path(spawn.order.folder))
        os.umask(limits.umask)
        if limits.account is not None:
            limits.account.become()
            _die_with(spawner_pid)  # the kernel forgets that with each change of user
        code = _work(spawn, trainer)
    except SystemExit as end:
        code = _exit_code(end)
    except BaseException:  # noqa: BLE001 - the last frame of the process: nothing may unwind into the spawner's loop
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):  # its output may be on a full disk, or closed by the script
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _detach(spawner_pid: int) -> None:
    """A session of its own, and death with the spawner, which alone could tell how it ended."""
    signal.set_wakeup_fd(-1)
    for number in _RESET_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    _die_with(spawner_pid)


def _die_with(spawner_pid: int) -> None:
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != spawner_pid:  # it died between fork and prctl
        os._exit(FAILED_EXIT_CODE)


def _redirect(folder: Path) -> None:
    """Close everything inherited (sockets, locks); output goes to the rank's file."""
    output = os.open(RankFolder.at(folder).output, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    sys.stdout = open(1, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115 - for the process's life
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115


def _work(spawn: Spawn, trainer: Trainer) -> int:
    os.environ.update(spawn.environment)
    refusal = _enter_directory(spawn)
    if refusal is None and spawn.program:
        refusal = _execute(spawn.program)
    if refusal is not None:
        return _refuse(spawn.order, refusal)
    return trainer.run_rank(spawn.order)


def _enter_directory(spawn: Spawn) -> str | None:
    """Why it cannot, if so."""
    if spawn.working_directory is None:
        os.chdir(spawn.order.folder)
        return None
    try:
        os.chdir(spawn.working_directory)
    except OSError as error:
        return f"environment.working_directory={spawn.working_directory}: {error.strerror} on this node; create it there or change the job"
    sys.path.insert(0, spawn.working_directory)
    return None


def _execute(program: tuple[str, ...]) -> str:
    """Replace this process; comes back only with the reason why that failed."""
    script = program[2]
    if not os.path.isfile(script):
        return f"script.path={script}: no such file on this node, seen from {os.getcwd()}; give an absolute path or set environment.working_directory"
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and exec would pass that on
    env.import_also(_ROOT)
    try:
        os.execv(program[0], program)
    except OSError as error:
        return f"cannot execute {program[0]}: {error.strerror}"


def _refuse(order: RankOrder, message: str) -> int:
    print(message, file=sys.stderr)
    failure = FailureReport(
        kind="invalid_input", rank=order.world.rank, message=message, time=time.time(), exit_code=FAILED_EXIT_CODE, last_lines=(message,)
    )
    result = Result(outcome="failed", step=0, failure=failure)
    write_durably(RankFolder.at(Path(order.folder)).result, msgspec.json.encode(result))
    return FAILED_EXIT_CODE


def _exit_code(end: SystemExit) -> int:
    """As the interpreter itself would: None is 0, a number itself, anything else is printed and 1."""
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code & 0xFF
    print(end.code, file=sys.stderr)
    return FAILED_EXIT_CODE
