"""The dependencies of routes: the services of this process, a session that commits at the edge, and a verified caller."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Annotated, cast

from fastapi import Depends, Header, Request
from fastapi.requests import HTTPConnection
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core import identity
from paceline.api.core.context import Services
from paceline.api.core.guest import check_guest
from paceline.api.core.identity import Caller
from paceline.api.core.origin import address_of, check_csrf, session_cookie
from paceline.api.errors import ProblemError
from paceline.api.schemas.identity import Role
from paceline.credentials import hash_secret
from paceline.db.models.nodes import NodeRow


def services_of(connection: HTTPConnection) -> Services:
    return cast(Services, connection.app.state.services)


async def _services(connection: HTTPConnection) -> Services:
    """The services. A coroutine: FastAPI calls plain functions in a thread, which costs an upload more than all its queries."""
    return services_of(connection)


ServicesDep = Annotated[Services, Depends(_services)]


async def read_session(services: ServicesDep) -> AsyncIterator[AsyncSession]:
    async with services.control.read() as session:
        yield session


async def write_session(services: ServicesDep) -> AsyncIterator[AsyncSession]:
    async with services.write(request=True) as session:
        yield session


#: A control session that only reads.
ReadSession = Annotated[AsyncSession, Depends(read_session, scope="function")]
#: A control session that commits when the route returns, before the answer is sent; an exception rolls it back.
WriteSession = Annotated[AsyncSession, Depends(write_session, scope="function")]


def bearer(connection: HTTPConnection) -> str | None:
    scheme, _, secret = connection.headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" and secret.strip() else None


async def find_caller(connection: HTTPConnection) -> Caller | None:
    """The verified identity of an HTTP request or a WebSocket handshake, with the address that it came from."""
    caller = await _find_caller(connection)
    return caller and replace(caller, address=address_of(connection))


async def _find_caller(connection: HTTPConnection) -> Caller | None:
    """The verified identity alone. A bad key is not rescued by a good cookie, nor by being a guest;
    a cookie may be of another coordinator that had this port."""
    services = services_of(connection)
    secret = bearer(connection)
    if secret is not None:
        async with services.control.read() as session:
            return await identity.caller_of_key(session, hash_secret(secret), services.now())
    cookie = session_cookie(connection)
    if cookie is not None:
        async with services.control.read() as session:
            caller = await identity.caller_of_session(session, hash_secret(cookie), services.now())
        if caller is not None:
            return caller
    return services.guest.admit(connection)


async def identified(request: Request) -> Caller:
    """The caller, of any valid identity; for cookies, with proof that our own page made an unsafe request. Found out once for each
    request."""
    known: Caller | None = getattr(request.state, "caller", None)
    if known is None:
        known = request.state.caller = await _identify(request)
    return known


async def _identify(request: Request) -> Caller:
    caller = await find_caller(request)
    if caller is None:
        if bearer(request):
            raise ProblemError("invalid_credential", "this API key is unknown, expired or revoked", headers={"WWW-Authenticate": "Bearer"})
        raise ProblemError(
            "not_authenticated",
            "sign in with a login link (`paceline login-link`), or send an API key as `Authorization: Bearer pk_...`",
            headers={"WWW-Authenticate": "Bearer"},
        )
    if caller.kind == "session":
        check_csrf(request, caller.csrf_token or "")
    elif caller.kind == "guest":
        check_guest(request, caller)
    services = services_of(request)
    services.last_uses.note(caller, services.now())
    return caller


def _at_least(role: Role) -> Callable[[Caller], Awaitable[Caller]]:
    async def check(caller: Annotated[Caller, Depends(identified)]) -> Caller:
        if not caller.may(role):
            raise ProblemError("forbidden", f"this needs the role {role}; you are signed in as {caller.name} with the role {caller.role}")
        return caller

    return check


Viewer = Annotated[Caller, Depends(identified)]
Member = Annotated[Caller, Depends(_at_least("member"))]
Admin = Annotated[Caller, Depends(_at_least("admin"))]
IfMatch = Annotated[
    str | None,
    Header(alias="If-Match", description="the job's ETag or revision: 412 when stale; absent: the change is made whatever the job is now"),
]
RevisionMatch = Annotated[
    str | None,
    Header(alias="If-Match", description="the ETag or revision: 412 when stale; absent: the change is made whatever it is now"),
]


async def joined_node(request: Request, services: ServicesDep) -> NodeRow:
    """The node whose credential came as Bearer. Detached: no session is open while the request goes on."""
    secret = bearer(request)
    node = await services.node_identities.find(secret) if secret else None
    if node is None:
        raise ProblemError("invalid_credential", "this is no node's credential; join again with a new join token")
    if node.state == "gone":
        raise ProblemError("node_removed", f"node {node.name} was removed; join again with a new join token to come back")
    return node


JoinedNode = Annotated[NodeRow, Depends(joined_node)]
