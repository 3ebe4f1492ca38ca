"""An agent's life from joining to its end: the node's credential, its rendezvous store, the loop, and the signals that end it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time

from paceline.cluster.agent.account import find_account
from paceline.cluster.agent.confinement import Confinement, inherited_environment
from paceline.cluster.agent.containers.engines import ContainerEngine
from paceline.cluster.agent.containers.node_engines import working_engines
from paceline.cluster.agent.disks import disk_of
from paceline.cluster.agent.environments.uv import has_uv
from paceline.cluster.agent.errors import NoPortError
from paceline.cluster.agent.folders import AgentFolder
from paceline.cluster.agent.inventory import address_towards, interface_of, take_inventory
from paceline.cluster.agent.join import credential_for
from paceline.cluster.agent.loop import Agent, AgentContext
from paceline.cluster.agent.notices import NoticeWatch
from paceline.cluster.agent.offer import NodeOffer
from paceline.cluster.agent.settings import AgentSettings
from paceline.cluster.agent.supervisor import EarlySpawner
from paceline.cluster.agent.vitals import RankHeartbeats
from paceline.distributed.store_server import StoreServer
from paceline.monitoring.backoff import Backoff
from paceline.monitoring.descriptors import allow_descriptors
from paceline.monitoring.files import write_durably
from paceline.monitoring.host import HostSampler
from paceline.monitoring.log_file import cap_periodically

FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 2.0, 3.0
#: File descriptors of an agent: connections of stores and ranks, and the files of ranks.
DESCRIPTORS = 65_536

log = logging.getLogger(__name__)


async def serve(settings: AgentSettings, folder: AgentFolder, offer: NodeOffer, notices: NoticeWatch, spawner: EarlySpawner) -> bool:
    """Run the agent until it ends. Returns whether it has left its ranks to the next one."""
    credential = await credential_for(settings, folder)
    vitals = RankHeartbeats(HostSampler(folder.path, time.monotonic()), offer.sampler, offer.gpu_error)
    store = StoreServer(allow_descriptors(DESCRIPTORS))
    cutting: asyncio.Task[None] | None = None
    try:
        address = settings.address or await _own_address(settings)
        engines = await asyncio.to_thread(_engines_of, settings.confinement)
        store_port = await _start_store(store, address, folder, settings.ports)
        stop, abandon = _events_of_signals(notices)  # before the spawner is handed over, which outlives an exception in between
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
            store_port=store_port,
            spawner=spawner.hand_over(),
        )
        logs = [folder.spawner_log, *([settings.log_file] if settings.log_file else [])]
        cutting = asyncio.create_task(cap_periodically(logs), name="log-files")
        await Agent(settings, folder, credential, context, store, vitals, notices).run(stop, abandon)
        return abandon.is_set()
    finally:
        if cutting is not None:
            cutting.cancel()
        await store.close()
        vitals.close()


async def _own_address(settings: AgentSettings) -> str:
    """The address of this node. Tried for ever: a node that boots before its network must not give up."""
    backoff = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
    while True:
        try:
            return address_towards(settings.server_host, settings.server_port)
        except OSError as error:
            log.warning("no way to %s yet: %s", settings.server_host, error)
        await backoff.pause()


def _engines_of(confinement: Confinement) -> tuple[ContainerEngine, ...]:
    """The container engines that work for the user of the ranks."""
    account = None if confinement.run_as is None else find_account(confinement.run_as)
    return working_engines(account, inherited_environment(os.environ, confinement.pass_environment))


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
