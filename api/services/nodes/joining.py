"""A machine becomes a node: a single-use join token is exchanged for a lasting credential."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import identity
from paceline.api.errors import ProblemError
from paceline.api.services.lifecycle import events
from paceline.cluster.protocol import JoinReply, JoinRequest
from paceline.cluster.states import NodeState
from paceline.db.models.identity import JoinTokenRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import identity as repository

NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


async def create_join_token(session: AsyncSession, *, created_by: str, now: datetime, lifetime: timedelta) -> tuple[str, datetime]:
    """A new join token: (the token, shown once; when it expires)."""
    token, expires = identity.new_secret(identity.JOIN_PREFIX), now + lifetime
    session.add(JoinTokenRow(hash=identity.hash_secret(token), expires_at=expires, created_by=created_by))
    return token, expires


def checked(request: JoinRequest) -> JoinRequest:
    """Return `request` if a node can have its name. Raises a problem otherwise."""
    if not NODE_NAME.fullmatch(request.name):
        raise ProblemError(
            "invalid_request", f"node name {request.name!r} must be 1-63 letters, digits, '.', '_' or '-', not starting with a sign"
        )
    return request


async def join(session: AsyncSession, request: JoinRequest, now: datetime) -> JoinReply:
    """Create a node in state joining. A refusal leaves the token unused: the transaction rolls back. `request` is `checked`."""
    if not await repository.use_join_token(session, identity.hash_secret(request.token), now):
        raise ProblemError(
            "invalid_join_token", "this join token was used, has expired or never existed; make a new one under Cluster, Add node"
        )
    if await repository.present_node(session, request.name) is not None:
        raise ProblemError("name_taken", f"a node called {request.name!r} is present; choose another --name, or remove that node first")
    credential = identity.new_secret(identity.NODE_PREFIX)
    node = NodeRow(
        name=request.name, state=NodeState.JOINING, state_since=now, credential_hash=identity.hash_secret(credential), joined_at=now
    )
    session.add(node)
    await session.flush()
    await events.record(
        session,
        type="node.joined",
        actor=identity.node_actor(node),
        cause="join_token",
        message=f"node {node.name} joined",
        node_id=node.id,
        time=now,
    )
    return JoinReply(node_id=node.id, credential=credential)
