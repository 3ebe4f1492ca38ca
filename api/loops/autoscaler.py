"""Makes pools larger and smaller as jobs need them: looks, decides by `cluster.autoscaling.decide`, and carries that out."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from paceline.api.core.context import Services
from paceline.api.services.nodes import scaling, withheld
from paceline.api.services.nodes.node_hours import NodeHours
from paceline.api.services.scheduling.scaling_facts import PAID, REST, ScalingMemory, read_facts
from paceline.cluster.autoscaling.decide import decide
from paceline.cluster.autoscaling.decisions import ScalingDecision
from paceline.db.repositories import provisioning as rows

logger = logging.getLogger(__name__)
INTERVAL_SECONDS = 2.0
COUNT_EVERY = timedelta(seconds=30)


@dataclass
class Autoscaler:
    """Looks at pools that have `autoscale`; of all others it only counts the node-hours."""

    services: Services
    _memory: ScalingMemory = field(default_factory=ScalingMemory)
    _count_at: datetime | None = None

    async def step_once(self, now: datetime) -> None:
        """Take one look, and carry out what it leads to."""
        if self._count_at is None or now >= self._count_at:
            self._count_at = now + COUNT_EVERY
            await self._count_hours(now)
        async with self.services.control.read() as session:
            facts = await read_facts(session, self._memory, self.services.uptime.since, now)
        decision = ScalingDecision() if facts is None else decide(facts, now)
        for each in await withheld.store(self.services, decision.withheld):
            logger.info("no node is launched for job %s: %s", each.job_id, each.reason)
        self._memory.growth.note_tries((*decision.grows_for, *decision.declined), now)
        refused = await scaling.carry_out(self.services, decision.launches, decision.drains, now)
        self._memory.rests_until |= dict.fromkeys(refused, now + REST)

    async def _count_hours(self, now: datetime) -> None:
        """Count the node-hours of every pool: one may get `autoscale`, and its budget, in the midst of a month."""
        async with self.services.control.read() as session:
            names = [row.name for row in await rows.pools(session)]
        for name in names:
            async with self.services.write() as session:
                row = await rows.pool(session, name, lock=True)
                if row is not None:
                    running = sum(each.state in PAID for each in await rows.open_of_pool(session, name))
                    row.spent = NodeHours.stored(row.spent, now).counted(running, now).document
