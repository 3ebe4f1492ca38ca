"""The nodes behind agents' credentials, and the ranks that they hold: remembered for some seconds, asked in sessions that are closed at
once.

An upload is the hot path, and its body may come slowly: neither may hold a connection of the pool for the sake of an identity. Every
change of a node nudges its topic, which forgets it here, in every replica that a nudge reaches.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import islice
from time import monotonic

from paceline.api.core import bus
from paceline.api.core.admission import Admission
from paceline.cluster.protocol import RankKey
from paceline.credentials import hash_secret
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import identity as repository
from paceline.db.repositories import rank_marks
from paceline.db.session import Database

#: A credential that was revoked at another replica is good for so long here, where no nudge comes from there.
KEPT_SECONDS = 10.0
MAX_KEPT = 10_000
#: So that a thousand agents that come at once leave connections for other work.
AT_ONCE = 4
MOST_AT_ONCE = 500
WAIT_SECONDS = 10.0
MAX_PLACES = 1_000  # of one node


@dataclass(frozen=True)
class KnownIdentity:
    node: NodeRow
    since: float
    places: set[RankKey] = field(default_factory=set)  # some of those that it holds: a rank of a generation never changes its node


@dataclass
class NodeIdentities:
    control: Database
    turns: Admission = field(default_factory=lambda: Admission("questions about agents", AT_ONCE, WAIT_SECONDS))
    _known: OrderedDict[str, KnownIdentity] = field(default_factory=OrderedDict)
    _digests: dict[str, str] = field(default_factory=dict)  # by the node's topic
    _asked: dict[str, asyncio.Future[NodeRow | None]] = field(default_factory=dict)
    _asking: asyncio.Task[None] | None = None
    _nudged: set[str] = field(default_factory=set)  # while a query is on its way: what it reads of these nodes is not kept

    async def find(self, secret: str) -> NodeRow | None:
        """The node that this credential belongs to, as it was at most KEPT_SECONDS ago; gone ones included."""
        digest = hash_secret(secret)
        known = self._known.get(digest)
        if known is not None and monotonic() - known.since < KEPT_SECONDS:
            return known.node
        return await self._ask(digest)

    async def _ask(self, digest: str) -> NodeRow | None:
        asked = self._asked.get(digest)
        if asked is None:
            asked = self._asked[digest] = asyncio.get_running_loop().create_future()
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._answer_all())
        return await asyncio.shield(asked)

    async def _answer_all(self) -> None:
        """Look credentials up together. Questions that come while a query is on its way share the next one: a thousand agents that come
        at once are a few queries."""
        while self._asked:
            batch = dict(islice(self._asked.items(), MOST_AT_ONCE))
            for digest in batch:
                del self._asked[digest]
            try:
                found = await self._look_up(list(batch))
            except Exception as error:  # noqa: BLE001 - handed on to every request that waits, which raises it
                for asked in batch.values():
                    asked.set_exception(error)
            else:
                for digest, asked in batch.items():
                    asked.set_result(found.get(digest))

    async def _look_up(self, digests: Sequence[str]) -> dict[str, NodeRow]:
        since, self._nudged = monotonic(), set()
        async with self.control.read() as session:
            nodes = await repository.nodes_by_credentials(session, digests)
            places = await rank_marks.living_ranks_of(session, [node.id for node in nodes.values()])
        for digest, node in nodes.items():
            if self._nudged.isdisjoint((bus.EVERYTHING, bus.node(node.id))):
                self._keep(digest, KnownIdentity(node, since, places[node.id]))
        return nodes

    async def held(self, node: NodeRow, places: Collection[RankKey]) -> set[RankKey]:
        """The ranks among `places` that the node holds."""
        known = self._known.get(node.credential_hash)
        if known is None:  # it has changed since it was found, as all do when a coordinator starts: asked for many at once
            await self._ask(node.credential_hash)
            known = self._known.get(node.credential_hash)
        if known is not None and known.places.issuperset(places):
            return set(places)
        async with self.turns.turn(), self.control.read() as session:
            found = await rank_marks.ranks_of(session, node.id, {job_id for job_id, _, _ in places})
        mine = found.intersection(places)
        if known is not None and len(known.places) + len(mine) <= MAX_PLACES:
            known.places.update(mine)
        return mine

    def _keep(self, digest: str, known: KnownIdentity) -> None:
        self._known[digest] = known
        self._known.move_to_end(digest)
        self._digests[bus.node(known.node.id)] = digest
        while len(self._known) > MAX_KEPT:
            _, oldest = self._known.popitem(last=False)
            self._digests.pop(bus.node(oldest.node.id), None)

    def forget(self, topics: Collection[str]) -> None:
        """Forget the nodes that were just changed."""
        if self._asking is not None and not self._asking.done():
            self._nudged.update(topics)
        if bus.EVERYTHING in topics:
            self._known.clear()
            self._digests.clear()
        for topic in topics:
            self._known.pop(self._digests.pop(topic, ""), None)
