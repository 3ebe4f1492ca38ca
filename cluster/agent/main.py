"""`python -m paceline.cluster.agent.main`: one node's agent.

A new node is ready once its spawner has loaded torch, so the spawner starts first: what follows (`serving`) is imported beside that.

SIGTERM or SIGINT: leave, ending ranks and spawner.  SIGHUP: end, leaving the ranks to the next agent (an upgrade).
SIGUSR1, and SIGTERM with --drain-on-term: a notice; the node is drained, then the agent leaves (`notices`).
Exit codes: 0 left as asked, 1 refused or impossible (the message says what to do), 2 usage, 3 left upon a notice and --returns, and 4 after
SIGHUP: to be started again with the same --data.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from types import FrameType
from typing import NoReturn

from paceline.cluster.agent.account import ENTERED_BY_ALL, find_account
from paceline.cluster.agent.errors import AgentError, DataFolderInUseError
from paceline.cluster.agent.folders import AgentFolder, lock
from paceline.cluster.agent.memory_groups import divide_own_group
from paceline.cluster.agent.notices import NoticeWatch
from paceline.cluster.agent.offer import decide_offer
from paceline.cluster.agent.processes import spare_from_memory_killer
from paceline.cluster.agent.settings import AgentSettings, forget_token, read_settings
from paceline.cluster.agent.supervisor import LEAVING_SIGNALS, EarlySpawner
from paceline.distributed.heap import share_arenas

PRIVATE_UMASK = 0o077
LEFT_TO_RETURN, LEFT_RANKS, INTERRUPTED = 3, 4, 130

log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    settings = read_settings(arguments)
    share_arenas()
    settings = keep_apart(settings)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs every request
    folder = AgentFolder(settings.data)
    try:
        folder.create()
        prepare_checkpoints(settings)
        prepare_account(settings, folder)
        settings = prepare_memory_limit(settings)
        held = lock(folder.agent_lock)
        if held is None:
            raise DataFolderInUseError(f"another agent uses {folder.path}: stop it, or give this one a --data of its own")
        notices = NoticeWatch(settings.notices)
        with EarlySpawner() as spawner:
            leave_when_told(notices, spawner)
            offer = decide_offer(settings, folder)
            spawner.start(settings, folder, offer.locks)
            from paceline.cluster.agent.serving import serve  # while the spawner loads torch

            leaves_ranks = asyncio.run(serve(settings, folder, offer, notices, spawner))
    except (AgentError, OSError) as error:
        log.error("%s", error)
        return 1
    except KeyboardInterrupt:  # before `leave_when_told`
        return INTERRUPTED
    return LEFT_RANKS if leaves_ranks else exit_code(notices)


def exit_code(notices: NoticeWatch) -> int:
    """The exit code of an agent that leaves without ranks."""
    return LEFT_TO_RETURN if notices.notice is not None and notices.notice.returns else 0


def leave_when_told(notices: NoticeWatch, spawner: EarlySpawner) -> None:
    """Until the agent serves, signals end this process at once, and its spawner: there are no ranks. `serving` replaces these handlers.

    They raise nothing: Python drops an exception that comes up in a weak reference's callback, and each import has one.
    """
    codes: dict[int, int] = {signal.SIGHUP: LEFT_RANKS, signal.SIGINT: INTERRUPTED}

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        if number == signal.SIGUSR1:
            notices.on_usr1()
        spawner.end()
        os._exit(codes.get(number, exit_code(notices)))

    for number in LEAVING_SIGNALS:
        signal.signal(number, leave)


def keep_apart(settings: AgentSettings) -> AgentSettings:
    """Keep the files of this agent and its spawner readable for their user only; files of ranks follow the umask that the agent was started
    with.

    The kernel's out-of-memory killer is asked to spare both: without the spawner all ranks of the node die."""
    forget_token()
    spare_from_memory_killer()
    umask = os.umask(PRIVATE_UMASK)
    return replace(settings, confinement=replace(settings.confinement, umask=umask))


def prepare_checkpoints(settings: AgentSettings) -> None:
    """Make the default folder for checkpoints, as a rank would: the coordinator is told which folder it is. Ranks try again, and report
    why it fails."""
    if settings.confinement.run_as is not None:
        return  # the folder is made for that user
    umask = os.umask(settings.confinement.umask)
    try:
        settings.checkpoints.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        log.warning("the folder for checkpoints cannot be made: %s", error)
    finally:
        os.umask(umask)


def prepare_account(settings: AgentSettings, folder: AgentFolder) -> None:
    """Let the user of --run-as into the folders of its ranks, and into no other. Raises RunAsError where that cannot be."""
    if settings.confinement.run_as is None:
        return
    account = find_account(settings.confinement.run_as)
    for path in (folder.path, folder.jobs, folder.agent_socket.parent):
        path.chmod(ENTERED_BY_ALL)
    account.require_entry(folder.jobs)
    if not settings.checkpoints.exists():
        settings.checkpoints.mkdir(mode=0o700, parents=True)
        account.own(settings.checkpoints)


def prepare_memory_limit(settings: AgentSettings) -> AgentSettings:
    """Set up the memory limit of ranks. Raises MemoryLimitError where the requested limit cannot be kept."""
    limit = settings.confinement.memory_limit
    if limit is None:
        return settings
    return replace(settings, confinement=replace(settings.confinement, groups=divide_own_group(limit)))


if __name__ == "__main__":
    raise SystemExit(main())
