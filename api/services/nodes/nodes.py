"""Nodes as clients see them, and the actions on them."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from pydantic import TypeAdapter
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.errors import ProblemError, not_found
from paceline.api.schemas.common import Actor
from paceline.api.schemas.nodes import GpuReading, GpuStatus, HostReading, Node, NodeInvitation, SlotUse
from paceline.api.services.lifecycle import events, launch_lifecycle, node_lifecycle
from paceline.api.services.nodes import joining, notices
from paceline.api.services.specs.node_facets import labels_of, taints_of
from paceline.cluster.policy.requirements import facet, facets
from paceline.cluster.states import NodeState, RankState
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import nodes as node_rows
from paceline.db.repositories import slots as slot_rows
from paceline.db.repositories.slots import SlotHolder
from paceline.tls.trust import travels_readable
from paceline.training.schema.resources import MOST_LABELS

NO_GPU = "no GPU"
#: All of a node at once: a page of a cluster has hundreds.
_READINGS = TypeAdapter(list[GpuReading])


async def find(session: AsyncSession, node_id: str, *, lock: bool = False) -> NodeRow:
    node = await (node_rows.get_locked if lock else node_rows.get)(session, node_id)
    if node is None:
        raise not_found("node", node_id)
    return node


# --- what clients see


async def describe(session: AsyncSession, node: NodeRow, now: datetime) -> Node:
    return describe_with(node, await slot_rows.holders(session, node.id), now)


def describe_with(node: NodeRow, holders: Sequence[SlotHolder], now: datetime) -> Node:
    """A node as clients see it, with the holders of its slots."""
    inventory, sample = node.inventory or {}, node.last_sample or {}
    readings = gpu_readings(node, holders, now)
    return Node(
        id=node.id,
        name=node.name,
        state=node.state,
        device="cuda" if node.device == "cuda" else "cpu",
        slots=_slots(node, holders),
        gpus=readings,
        gpu_note=None if readings else sample.get("gpu_error") or (NO_GPU if node.inventory else None),
        host=HostReading.model_validate(sample["host"]) if sample.get("host") else None,
        address=node.address,
        cpu_count=inventory.get("cpu_count", 0),
        memory_bytes=inventory.get("memory_bytes", 0),
        hostname=inventory.get("hostname", ""),
        platform=inventory.get("platform", ""),
        versions=inventory.get("versions", {}),
        labels=labels_of(node),
        taints=taints_of(node),
        container_engines=inventory.get("container_engines", []),
        has_uv=inventory.get("has_uv"),
        clock_skew_seconds=node.clock_skew,
        heartbeat_age_seconds=_age(node, now),
        backlog_records=node.backlog,
        drain_blocked_by=_blockers(node, holders),
        joined_at=node.joined_at,
        provider=node.provider,
        pool=node.pool,
        handle=node.handle,
        revision=node.version,
    )


def _slots(node: NodeRow, holders: Sequence[SlotHolder]) -> list[SlotUse]:
    held = {each.slot: each for each in holders}
    return [_slot(index, held.get(index)) for index in range(node.slots)]


def _slot(index: int, holder: SlotHolder | None) -> SlotUse:
    if holder is None:
        return SlotUse(index=index, job_id=None, job_name=None, rank=None)
    return SlotUse(index=index, job_id=holder.job_id, job_name=holder.job_name, rank=holder.rank)


def _blockers(node: NodeRow, holders: Sequence[SlotHolder]) -> list[str]:
    draining = NodeState.DRAINING in (node.state, node.state_before_unreachable)
    return sorted({each.job_id for each in holders if each.state is not RankState.LOST}) if draining else []


def _age(node: NodeRow, now: datetime) -> float | None:
    return max(0.0, (now - node.heartbeat_at).total_seconds()) if node.heartbeat_at else None


def gpu_readings(node: NodeRow, holders: Sequence[SlotHolder], now: datetime) -> list[GpuReading]:
    """Return the newest readings of a node's cards, each with who holds it. An agent offers and reads its cards in the same order: with
    --gpus 2,0 slot 0 is GPU 2."""
    names = {gpu["uuid"]: gpu["name"] for gpu in (node.inventory or {}).get("gpus", [])}
    samples: list[dict[str, Any]] = (node.last_sample or {}).get("gpus", [])
    shared = {"node_id": node.id, "node_name": node.name, "age_seconds": _age(node, now) or 0.0}
    held = {each.slot: each for each in holders} if node.device == "cuda" else {}
    return _READINGS.validate_python(
        [
            {**sample, **shared, "name": names.get(sample["uuid"], "unknown GPU"), **_holder(held.get(slot))}
            for slot, sample in enumerate(samples)
        ]
    )


def _holder(holder: SlotHolder | None) -> dict[str, Any]:
    return {} if holder is None else {"job_id": holder.job_id, "job_name": holder.job_name, "rank": holder.rank}


async def gpu_status(session: AsyncSession, now: datetime) -> GpuStatus:
    nodes = await node_rows.present(session)
    held = slot_rows.by_node(await slot_rows.holders(session))
    readings: Mapping[str, list[GpuReading]] = {node.name: gpu_readings(node, held[node.id], now) for node in nodes}
    return GpuStatus(
        gpus=[reading for of_node in readings.values() for reading in of_node],
        nodes_without_gpu=[name for name, of_node in readings.items() if not of_node],
    )


def parse_states(status: str | None) -> frozenset[NodeState]:
    names = [name.strip() for name in (status or "").split(",") if name.strip()]
    unknown = [name for name in names if name not in set(NodeState)]
    if unknown:
        raise ProblemError("invalid_parameter", f"status={unknown[0]} is no state of a node; use {', '.join(NodeState)}")
    return frozenset(NodeState(name) for name in names)


# --- what clients may ask


async def invite(
    session: AsyncSession, actor: Actor, lifetime: timedelta, server: str, authority: str | None, now: datetime
) -> NodeInvitation:
    """Make a join token and the command that uses it at the URL `server`. Over TLS the token carries the fingerprint of `authority`."""
    token, expires = await joining.create_join_token(session, created_by=actor.name, now=now, lifetime=lifetime)
    cause = f"{actor.name} asked for it"
    await events.record(session, type="node.invited", actor=actor, cause=cause, message="a node was invited to join", time=now)
    shown = joining.pinned(token, server, authority)
    command = f"paceline worker --server {server} --token {shown}{' --insecure-http' if travels_readable(server) else ''}"
    return NodeInvitation(token=shown, command=command, expires_at=expires, warning=warning_of_loopback(server))


def warning_of_loopback(server: str) -> str | None:
    """Why no other machine can join at the URL `server`, with the way out; None: it is no loopback address."""
    if not _is_loopback(urlsplit(server).hostname or ""):
        return None
    return (
        f"{server} is this coordinator's own loopback address: the command joins agents of its own machine only. For other machines run "
        "'paceline down', then 'paceline up --host ADDRESS', or set PACELINE_PUBLIC_URL to the address under which they reach it"
    )


def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    return address.is_loopback or address.is_unspecified


async def cordon(session: AsyncSession, node: NodeRow, actor: Actor, now: datetime) -> None:
    """Place nothing new on the node; jobs that run there go on."""
    if _intended(node) is NodeState.CORDONED:
        return
    await _set_intended(session, node, NodeState.CORDONED, {NodeState.READY}, "cordoned", actor, now)


async def uncordon(session: AsyncSession, node: NodeRow, actor: Actor, now: datetime) -> None:
    """Place jobs on the node again. Also takes back a removal, as long as the node has not been told to leave."""
    if _intended(node) is NodeState.READY:
        return
    if node.leaving:
        raise ProblemError("node_state", f"node {node.name} has been told to leave; let it join again with a new token")
    await notices.forget(session, node)
    await _set_intended(session, node, NodeState.READY, {NodeState.CORDONED, NodeState.DRAINING}, "uncordoned", actor, now)
    await launch_lifecycle.renew_wish_for_node(session, node, actor, now)


async def taint(session: AsyncSession, node: NodeRow, taints: Mapping[str, str], actor: Actor, now: datetime) -> None:
    """Give the node these taints and no others. Jobs that run there go on."""
    if dict(taints) != taints_of(node):
        await node_lifecycle.set_taints(session, node, taints, actor, now)


async def change_taints(
    session: AsyncSession, node: NodeRow, added: Mapping[str, str], removed: Sequence[str], actor: Actor, now: datetime
) -> None:
    """Add and take off some of the node's taints; its row is locked by this transaction. Raises ProblemError invalid_request for one that
    is not there."""
    present = taints_of(node)
    named = {each: [key for key, value in present.items() if each in (key, facet(key, value))] for each in removed}
    if unknown := sorted(each for each, found in named.items() if not found):
        there = ", ".join(sorted(facets(present))) or "none"
        raise ProblemError("invalid_request", f"node {node.name} has no taint {', '.join(unknown)}; it has: {there}")
    left = {key: value for key, value in present.items() if all(key not in found for found in named.values())}
    if len(left | dict(added)) > MOST_LABELS:
        raise ProblemError(
            "invalid_request", f"node {node.name} would have {len(left | dict(added))} taints; the limit is {MOST_LABELS}: take some off"
        )
    await taint(session, node, left | dict(added), actor, now)


async def remove(session: AsyncSession, node: NodeRow, actor: Actor, now: datetime, *, force: bool, why: str | None = None) -> None:
    """Drain, then remove. `force`: its jobs recover elsewhere at once. Asking twice is harmless. `why`: for the history; None: somebody
    has asked for it."""
    if node.state is NodeState.GONE:
        return
    asked = why or f"removal asked for by {actor.name}"
    await launch_lifecycle.drop_wish_for_node(session, node, actor, asked, now)
    await notices.forget(session, node)
    if node.state in (NodeState.JOINING, NodeState.LOST) or (force and node.state is NodeState.UNREACHABLE):
        await node_lifecycle.lose_ranks(session, node, now, removed_by=actor)
        await node_lifecycle.move(session, node, NodeState.GONE, actor, why or f"removed by {actor.name}", now)
        return
    if node.state is NodeState.UNREACHABLE:
        if node.state_before_unreachable is not NodeState.DRAINING:
            await node_lifecycle.set_intended_state(session, node, NodeState.DRAINING, actor, asked, now)
        return
    if node.state is not NodeState.DRAINING:
        await node_lifecycle.move(session, node, NodeState.DRAINING, actor, asked, now)
    if force and not node.leaving:
        await node_lifecycle.lose_ranks(session, node, now, removed_by=actor)
        await node_lifecycle.order_to_leave(session, node, now)


def _intended(node: NodeRow) -> NodeState | None:
    """The state that the node has, or will have again once it is back."""
    return node.state_before_unreachable if node.state in (NodeState.UNREACHABLE, NodeState.LOST) else node.state


async def _set_intended(
    session: AsyncSession, node: NodeRow, to: NodeState, allowed: set[NodeState], participle: str, actor: Actor, now: datetime
) -> None:
    if _intended(node) not in allowed:
        raise ProblemError(
            "node_state", f"node {node.name} is {node.state.value}; only a node that is {' or '.join(sorted(allowed))} can be {participle}"
        )
    why = f"{participle} by {actor.name}"
    if node.state in (NodeState.UNREACHABLE, NodeState.LOST):
        await node_lifecycle.set_intended_state(session, node, to, actor, why, now)
    else:
        await node_lifecycle.move(session, node, to, actor, why, now)
