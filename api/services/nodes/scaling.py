"""Carries out what the autoscaler decides: nodes of a pool are launched, idle ones drained. Every decision is an event with its reason."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime

from paceline.api.core.context import Services
from paceline.api.core.identity import AUTOSCALER
from paceline.api.errors import ProblemError
from paceline.api.services.lifecycle import events
from paceline.api.services.nodes import launches, nodes
from paceline.cluster.autoscaling.decisions import DrainNode, LaunchNodes
from paceline.cluster.states import NodeState
from paceline.db.repositories import nodes as node_rows
from paceline.db.repositories import slots as slot_rows

logger = logging.getLogger(__name__)


async def carry_out(services: Services, wishes: Sequence[LaunchNodes], drains: Sequence[DrainNode], now: datetime) -> list[str]:
    """Carry out decisions, each in a transaction of its own. What a pool refuses is an event, and holds up nothing else. Returns the pools that
    refused."""
    refused = []
    for wish in wishes:
        try:
            async with services.write() as session:
                await launches.request_of_pool(session, wish.pool, wish.count, services.settings.public_url, AUTOSCALER, wish.reason, now)
        except ProblemError as refusal:
            refused.append(wish.pool)
            logger.info("pool %s refuses %d more node(s): %s", wish.pool, wish.count, refusal)
            async with services.write() as session:
                message, data = f"pool {wish.pool} refuses {wish.count} more node(s): {refusal}", {"pool": wish.pool}
                await events.record(
                    session, type="autoscaler.refused", actor=AUTOSCALER, cause=wish.reason, message=message, data=data, time=now
                )
    for drain in drains:
        async with services.write() as session:
            node = await node_rows.get_locked(session, drain.node_id)
            if node is None or node.pool != drain.pool or node.state in (NodeState.DRAINING, NodeState.GONE):
                continue
            if not await slot_rows.holders(session, node.id):  # a job may have come to it since
                await nodes.remove(session, node, AUTOSCALER, now, force=False, why=drain.reason)
    return refused
