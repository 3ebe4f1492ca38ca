"""`python -m cluster.agent.main`: one node's agent.

SIGTERM or SIGINT: leave, ending ranks and spawner.  SIGHUP: end, leaving the ranks to the next agent (an upgrade).
Exit codes: 0 left as asked, 1 refused or impossible (the message says what to do), 2 usage.
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import sys
import time
from collections.abc import Sequence

from cluster.agent.errors import AgentError, DataFolderInUseError
from cluster.agent.folders import AgentFolder
from cluster.agent.inventory import address_towards, interface_of, take_inventory
from cluster.agent.join import credential_for
from cluster.agent.loop import Agent, Site
from cluster.agent.settings import AgentSettings, read_settings
from cluster.agent.spawner import lock
from cluster.agent.vitals import Vitals
from distributed.store_server import StoreServer
from monitoring.files import write_durably
from monitoring.gpu import GpuSampler, NoGpuError, open_gpus
from monitoring.host import HostSampler

ADDRESS_RETRY_SECONDS = 2.0

log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    settings = read_settings(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs every request
    folder = AgentFolder(settings.data)
    try:
        folder.create()
        held = lock(folder.agent_lock)
        if held is None:
            raise DataFolderInUseError(f"another agent uses {folder.path}: stop it, or give this one a --data of its own")
        asyncio.run(serve(settings, folder))
    except (AgentError, OSError) as error:
        log.error("%s", error)
        return 1
    except KeyboardInterrupt:  # while joining; later SIGINT means leave
        return 130
    return 0


async def serve(settings: AgentSettings, folder: AgentFolder) -> None:
    credential = await credential_for(settings, folder)
    gpus, gpu_error = _open_gpus()
    store = StoreServer()
    try:
        address = settings.address or await _own_address(settings)
        site = Site(
            inventory=take_inventory(gpus, settings.slots, settings.labels),
            address=address,
            interface=interface_of(address),
            store_port=await _start_store(store, address, folder),
        )
        vitals = Vitals(HostSampler(folder.path, time.monotonic()), gpus, gpu_error)
        stop, abandon = _events_of_signals()
        await Agent(settings, folder, credential, site, store, vitals).run(stop, abandon)
    finally:
        await store.close()
        if gpus is not None:
            gpus.close()


def _open_gpus() -> tuple[GpuSampler | None, str | None]:
    try:
        return open_gpus(), None
    except NoGpuError as error:
        return None, str(error)


async def _own_address(settings: AgentSettings) -> str:
    """Tried for ever: a node that boots before its network must not give up."""
    while True:
        try:
            return address_towards(settings.server_host, settings.server_port)
        except OSError as error:
            log.warning("no way to %s yet: %s", settings.server_host, error)
        await asyncio.sleep(ADDRESS_RETRY_SECONDS * random.uniform(0.5, 1.5))


async def _start_store(store: StoreServer, address: str, folder: AgentFolder) -> int:
    """On the port of the last time if it is free: worlds that were handed out name it."""
    last = folder.store_port.read_text() if folder.store_port.exists() else ""
    try:
        port = await store.start(address, int(last) if last.isdigit() else 0)
    except OSError:
        port = await store.start(address)
    write_durably(folder.store_port, str(port).encode())
    return port


def _events_of_signals() -> tuple[asyncio.Event, asyncio.Event]:
    stop, abandon = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, stop.set)
    loop.add_signal_handler(signal.SIGHUP, abandon.set)
    return stop, abandon


if __name__ == "__main__":
    raise SystemExit(main())
