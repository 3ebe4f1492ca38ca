"""Makes pools larger and smaller as jobs need them: looks, decides by `cluster.autoscaling.decide`, and carries that out."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from paceline.api.core.context import Services
from paceline.api.core.troubles import Subject
from paceline.api.loops.due_looks import DueLooks
from paceline.api.services.lifecycle.isolation import PhaseTurns
from paceline.api.services.nodes import expected_nodes, scaling, withheld
from paceline.api.services.nodes.node_hours import NodeHours
from paceline.api.services.scheduling.scaling_facts import PAID, REST, ScalingMemory, read_facts
from paceline.cluster.autoscaling.decide import decide
from paceline.cluster.autoscaling.decisions import ScalingDecision
from paceline.db.models.provisioning import PoolRow
from paceline.db.repositories import provisioning as rows

logger = logging.getLogger(__name__)
INTERVAL_SECONDS = 2.0
COUNT_EVERY = timedelta(seconds=30)


@dataclass
class Autoscaler:
    """Looks at pools that have `autoscale`; of all others it only counts the node-hours."""

    services: Services
    looks: DueLooks
    _memory: ScalingMemory = field(default_factory=ScalingMemory)
    _told: withheld.ToldReasons = field(default_factory=withheld.ToldReasons)
    _counted_at: datetime | None = None

    async def step_once(self, now: datetime) -> None:
        """Take one look, and carry out what it leads to."""
        if self._counted_at is None or not timedelta(0) <= now - self._counted_at < COUNT_EVERY:  # less than none: the clock was set back
            self._counted_at = now
            await self._count_hours(now)
        has_pools = (await self.looks.look(now)).scaling
        await self._tell_of_unreadable(now, has_pools)
        if not has_pools:
            return
        async with self.services.control.read() as session:
            facts = await read_facts(session, self._memory, self.services.uptime.since, now)
        decision = ScalingDecision() if facts is None else decide(facts, now)
        for each in await withheld.store(self.services, decision.withheld, self._told, now):
            logger.info("no node is launched for job %s: %s", each.job_id, each.reason)
        self._memory.scale_ups.note_tries((*decision.grows_for, *decision.declined), now)
        refused = await scaling.carry_out(self.services, decision.launches, decision.drains, now)
        self._memory.rests_until |= dict.fromkeys(refused, now + REST)

    async def _count_hours(self, now: datetime) -> None:
        """Count the node-hours of every pool: one may get `autoscale`, and its budget, in the midst of a month."""
        async with self.services.control.read() as session:
            names = [row.name for row in await rows.pools(session)]
        turns = PhaseTurns(self.services, "count its node-hours", now)
        self.services.troubles.forget_all_but(turns.task, names)
        for name in names:
            await turns.take(Subject("pool", name), partial(self._count_hours_of, name, now))

    async def _count_hours_of(self, name: str, now: datetime) -> None:
        async with self.services.write() as session:
            row = await rows.pool(session, name, lock=True)
            if row is not None:
                running = sum(each.state in PAID for each in await rows.open_of_pool(session, name))
                row.spent = NodeHours.stored(row.spent, now).counted(running, now).document

    async def _tell_of_unreadable(self, now: datetime, has_pools: bool) -> None:
        """Tell of the pools that are left as they are: this version refuses what is stored of them. Without pools, forget what was told."""
        turns = PhaseTurns(self.services, "decide how many nodes it has", now)
        pools = []
        if has_pools:
            async with self.services.control.read() as session:
                pools = list(await rows.autoscaled(session))
        self.services.troubles.forget_all_but(turns.task, [pool.name for pool in pools])
        for pool in pools:
            await turns.look(Subject("pool", pool.name), partial(_require_readable, pool))


def _require_readable(pool: PoolRow) -> None:
    if (error := expected_nodes.why_unreadable(pool)) is not None:
        raise error
