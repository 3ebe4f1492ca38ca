"""`python -m paceline.cluster.agent.main`: one node's agent.

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
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from paceline.cluster.agent.account import ENTERED_BY_ALL, find_account
from paceline.cluster.agent.containers.node_engines import working_engines
from paceline.cluster.agent.disks import disk_of
from paceline.cluster.agent.environments.uv import has_uv
from paceline.cluster.agent.errors import AgentError, DataFolderInUseError, NoPortError
from paceline.cluster.agent.folders import AgentFolder, lock
from paceline.cluster.agent.inventory import address_towards, interface_of, take_inventory
from paceline.cluster.agent.join import Credential, credential_for
from paceline.cluster.agent.loop import Agent, AgentContext
from paceline.cluster.agent.memory_groups import divide_own_group
from paceline.cluster.agent.notices import NoticeWatch
from paceline.cluster.agent.offer import NodeOffer, settle_offer
from paceline.cluster.agent.processes import spare_from_memory_killer
from paceline.cluster.agent.settings import AgentSettings, forget_token, read_settings
from paceline.cluster.agent.supervisor import SpawnerOptions, start_spawner
from paceline.cluster.agent.vitals import RankHeartbeats
from paceline.distributed.heap import share_arenas
from paceline.distributed.store_server import StoreServer
from paceline.monitoring.backoff import Backoff
from paceline.monitoring.descriptors import allow_descriptors
from paceline.monitoring.files import write_durably
from paceline.monitoring.host import HostSampler
from paceline.monitoring.log_file import cap_periodically

FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 2.0, 3.0
PRIVATE_UMASK = 0o077
#: File descriptors of an agent: connections of stores and ranks, and the files of ranks.
DESCRIPTORS = 65_536
LEFT_TO_RETURN, LEFT_RANKS = 3, 4

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
        leaves_ranks = asyncio.run(serve(settings, folder, settle_offer(settings, folder), notices))
    except (AgentError, OSError) as error:
        log.error("%s", error)
        return 1
    except KeyboardInterrupt:  # while joining; later SIGINT means leave
        return 130
    if leaves_ranks:
        return LEFT_RANKS
    return LEFT_TO_RETURN if notices.notice is not None and notices.notice.returns else 0


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


async def serve(settings: AgentSettings, folder: AgentFolder, offer: NodeOffer, notices: NoticeWatch) -> bool:
    """Run the agent until it ends. Returns whether it has left its ranks to the next one."""
    if (joined := await _joined(settings, folder, offer)) is None:
        return False
    credential, spawner = joined
    vitals = RankHeartbeats(HostSampler(folder.path, time.monotonic()), offer.sampler, offer.gpu_error)
    store = StoreServer(allow_descriptors(DESCRIPTORS))
    cutting: asyncio.Task[None] | None = None
    try:
        address = settings.address or await _own_address(settings)
        engines = await asyncio.to_thread(working_engines)
        context = AgentContext(
            offer=offer,
            inventory=take_inventory(
                offer,
                settings.labels,
                disk_of(settings.checkpoints),
                settings.taints,
                container_engines=tuple(each.name for each in engines),
                has_uv=has_uv(),
            ),
            address=address,
            interface=interface_of(address),
            engines=engines,
            store_port=await _start_store(store, address, folder, settings.ports),
            spawner=spawner,
        )
        stop, abandon = _events_of_signals(notices)
        logs = [folder.spawner_log, *([settings.log_file] if settings.log_file else [])]
        cutting = asyncio.create_task(cap_periodically(logs), name="log-files")
        await Agent(settings, folder, credential, context, store, vitals, notices).run(stop, abandon)
        return abandon.is_set()
    finally:
        if cutting is not None:
            cutting.cancel()
        await store.close()
        vitals.close()


async def _joined(
    settings: AgentSettings, folder: AgentFolder, offer: NodeOffer
) -> tuple[Credential, subprocess.Popen[bytes] | None] | None:
    """The node's credential; None: SIGTERM came first. An agent that has to join starts its spawner beside that, which takes seconds to load
    torch: the coordinator may be starting too."""
    spawner = None if folder.credential.exists() else start_spawner(folder, SpawnerOptions.of(settings), offer.locks.renew())
    told_to_leave = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told_to_leave.set)
    joining, leaving = asyncio.ensure_future(credential_for(settings, folder)), asyncio.ensure_future(told_to_leave.wait())
    joined = False
    try:
        await asyncio.wait({joining, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not joining.done():
            return None
        credential = await joining
        joined = True
        return credential, spawner
    finally:
        joining.cancel()
        leaving.cancel()
        if spawner is not None and not joined:  # it has no ranks
            spawner.kill()
            spawner.wait()


async def _own_address(settings: AgentSettings) -> str:
    """The address of this node. Tried for ever: a node that boots before its network must not give up."""
    backoff = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
    while True:
        try:
            return address_towards(settings.server_host, settings.server_port)
        except OSError as error:
            log.warning("no way to %s yet: %s", settings.server_host, error)
        await backoff.pause()


async def _start_store(store: StoreServer, address: str, folder: AgentFolder, ports: range | None) -> int:
    """Start the rendezvous store, on the port of the last time if it is free: worlds that were handed out name that port. Else on any
    port, or one of `ports` where there is such a range."""
    last = folder.store_port.read_text() if folder.store_port.exists() else ""
    wanted = [int(last)] if last.isdecimal() and (ports is None or int(last) in ports) else []
    for candidate in [*wanted, *(ports or [0])]:
        try:
            port = await store.start(address, candidate)
        except OSError as error:
            refusal = error
            continue
        write_durably(folder.store_port, str(port).encode())
        return port
    raise NoPortError(f"no port of {address} in {ports} is free for the rendezvous store ({refusal}); widen --port-range") from refusal


def _events_of_signals(notices: NoticeWatch) -> tuple[asyncio.Event, asyncio.Event]:
    stop, abandon = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, lambda: stop.set() if notices.on_term() else None)
    loop.add_signal_handler(signal.SIGUSR1, notices.on_usr1)
    loop.add_signal_handler(signal.SIGINT, stop.set)
    loop.add_signal_handler(signal.SIGHUP, abandon.set)
    return stop, abandon


if __name__ == "__main__":
    raise SystemExit(main())
