"""A machine becomes a node: a single-use join token is exchanged for a lasting credential."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import identity
from paceline.api.errors import ProblemError
from paceline.api.services.lifecycle import events, launch_lifecycle
from paceline.api.settings import Settings
from paceline.cluster.protocol import JoinReply, JoinRequest
from paceline.cluster.states import OVER_LAUNCH_STATES, LaunchState, NodeState
from paceline.credentials import JOIN_PREFIX, NODE_PREFIX, hash_secret, new_secret
from paceline.db.models.identity import JoinTokenRow
from paceline.db.models.nodes import NodeRow
from paceline.db.models.provisioning import LaunchRow
from paceline.db.repositories import identity as repository
from paceline.db.repositories import nodes as node_rows
from paceline.db.repositories import provisioning as launch_rows
from paceline.tls.trust import fingerprint_of, with_fingerprint

NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


async def create_join_token(
    session: AsyncSession, *, created_by: str, now: datetime, lifetime: timedelta, launch_id: str | None = None, made: str | None = None
) -> tuple[str, datetime]:
    """A new join token, or `made`, which was made beforehand: (the token, shown once; when it expires). `launch_id`: for the node of this
    launch alone."""
    token, expires = made or new_secret(JOIN_PREFIX), now + lifetime
    session.add(JoinTokenRow(hash=hash_secret(token), expires_at=expires, created_by=created_by, launch_id=launch_id))
    return token, expires


def pinned(token: str, server: str, authority: str | None) -> str:
    """Return the token with the fingerprint of the coordinator's own authority, if it has one and `server` is reached over TLS."""
    return with_fingerprint(token, fingerprint_of(authority)) if authority and urlsplit(server).scheme == "https" else token


def own_authority(settings: Settings) -> str | None:
    """The certificate of the coordinator's own authority, as PEM; None: its certificate is one that machines believe anyhow. Raises
    TrustError or OSError where PACELINE_TLS_CA leads to no certificate."""
    if settings.tls_ca is None:
        return None
    authority = settings.tls_ca.read_text("ascii", errors="replace")
    fingerprint_of(authority)
    return authority


def checked(request: JoinRequest) -> JoinRequest:
    """Return `request` if a node can have its name. Raises a problem otherwise."""
    if not NODE_NAME.fullmatch(request.name):
        raise ProblemError(
            "invalid_request", f"node name {request.name!r} must be 1-63 letters, digits, '.', '_' or '-', not starting with a sign"
        )
    return request


async def _redeem(session: AsyncSession, request: JoinRequest, now: datetime) -> LaunchRow | None:
    """Use the token of a request. Returns the launch that it was made for, locked, or None. Raises ProblemError invalid_join_token."""
    digest = hash_secret(request.token)
    launch_id = await repository.launch_of_token(session, digest, now)
    if launch_id is None:
        if not await repository.use_join_token(session, digest, now):
            raise ProblemError(
                "invalid_join_token", "this join token has expired or was already used; make a new one under Cluster, Add node"
            )
        return None
    launch = await launch_rows.launch(session, launch_id, lock=True)
    if launch is None or not launch.wanted or launch.state in (*OVER_LAUNCH_STATES, LaunchState.TERMINATING):
        raise ProblemError(
            "invalid_join_token", f"this join token was made for a node that is wanted no more; ask for {request.name} again"
        )
    if launch.name != request.name:
        raise ProblemError(
            "invalid_join_token", f"this join token was made for the node {launch.name!r}, not for {request.name!r}; leave --name out"
        )
    return launch


async def join(session: AsyncSession, request: JoinRequest, now: datetime) -> JoinReply:
    """Create a node in state joining. A refusal leaves the token unused: the transaction rolls back. `request` is `checked`.

    The agent of a launch that has never said hello joins once more as the same node: the answer to its first request may have been lost."""
    present, credential = await repository.present_node(session, request.name), new_secret(NODE_PREFIX)
    if present is not None and present.state is NodeState.JOINING:
        present = await node_rows.get_locked(session, present.id)  # before its launch, as everywhere
    launch = await _redeem(session, request, now)
    if present is not None and launch is not None and present.id == launch.node_id and present.state is NodeState.JOINING:
        present.credential_hash = hash_secret(credential)
        return JoinReply(node_id=present.id, credential=credential)
    if present is not None and present.state is not NodeState.GONE:
        raise ProblemError("name_taken", f"a node called {request.name!r} is present; choose another --name, or remove that node first")
    node = NodeRow(name=request.name, state=NodeState.JOINING, state_since=now, credential_hash=hash_secret(credential), joined_at=now)
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
    if launch is not None:
        await launch_lifecycle.join(session, launch, node, now)
    return JoinReply(node_id=node.id, credential=credential)
