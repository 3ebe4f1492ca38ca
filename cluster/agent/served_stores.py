"""The stores of scripts that this node serves, on the agent's side: requested from the spawner, and ended with their generations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from paceline.cluster.agent.ports import free_port
from paceline.cluster.agent.ranks.rendezvous import RendezvousPoint
from paceline.cluster.agent.spawner_link import EndStore, ProcessList, ServedStore, ServeStore
from paceline.cluster.protocol import GenerationKey
from paceline.training.link import RankPlace
from paceline.training.schema.script import Script


class ServedStores:
    """The stores that this node serves. `send` passes a message on to the spawner; a lost one is sent again to the next spawner."""

    def __init__(self, send: Callable[[ServeStore | EndStore], bool], ports: range | None) -> None:
        self._send = send
        self._ports = ports
        self._limits = None if ports is None else (ports.start, ports.stop)
        self._asked: dict[GenerationKey, ServeStore] = {}
        self._served: dict[GenerationKey, ServedStore] = {}
        self._supported = True
        self._news = asyncio.Event()

    async def choose(self, world: RankPlace, script: Script) -> RendezvousPoint:
        """Choose the rendezvous of a script's ranks. A command may be a launcher, which serves a store of its own: it gets a free port.

        Raises OSError where none is free."""
        served = None if script.command is not None else await self._port_of_store(world)
        if served is None:
            return RendezvousPoint(port=free_port(world.store_host, self._ports), served=False)
        return RendezvousPoint(port=served, served=True)

    async def _port_of_store(self, world: RankPlace) -> int | None:
        """The port of a served store; None where a spawner of an older version runs, which serves none."""
        key = GenerationKey(world.job_id, world.generation)
        self._asked[key] = ask = ServeStore(key=key, host=world.store_host, ports=self._limits)
        if self._supported:
            self._send(ask)
        try:
            while self._supported and key not in self._served:
                self._news.clear()
                await self._news.wait()
        finally:
            del self._asked[key]
        found = self._served.get(key)
        if found is not None and found.port is None:
            raise OSError(f"the store in which the script's ranks meet cannot be served at {world.store_host}: {found.error}")
        return None if found is None else found.port

    def apply(self, process_list: ProcessList, *, first: bool) -> None:
        """Apply a process list; `first`: of a new connection, whose spawner may not have got the requests of the one before."""
        self._supported = process_list.stores is not None
        self._served = {store.key: store for store in process_list.stores or ()}
        if first and self._supported:
            for ask in self._asked.values():
                self._send(ask)
        self._news.set()

    def keep(self, generations: Collection[GenerationKey]) -> None:
        """End the stores of all other generations. Harmless the second time."""
        for key in self._served.keys() - set(generations):
            self._send(EndStore(key=key))
