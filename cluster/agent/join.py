"""Joining a cluster: a single-use token is exchanged for a credential, which DATA keeps."""

from __future__ import annotations

import logging
import time

import httpx
import msgspec

from paceline.cluster.agent.errors import JoinRefusedError, NotJoinedError
from paceline.cluster.agent.folders import AgentFolder
from paceline.cluster.agent.settings import AgentSettings
from paceline.cluster.protocol import JOIN_PATH, JoinReply, JoinRequest
from paceline.monitoring.backoff import Backoff
from paceline.monitoring.files import write_durably

JOIN_TIMEOUT_SECONDS = 120.0  # a coordinator that is being started beside us
REQUEST_TIMEOUT_SECONDS = 10.0
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.3, 0.45

log = logging.getLogger(__name__)


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """The node's credential, as in `AgentFolder.credential`, readable by its owner only."""

    server: str
    node_id: str
    credential: str


async def credential_for(settings: AgentSettings, folder: AgentFolder) -> Credential:
    """The stored credential if it is for this server, else a new one in exchange for the token."""
    stored = _read(folder)
    if stored is not None and stored.server == settings.server:
        return stored
    if settings.token is None:
        other = f" (DATA holds one for {stored.server})" if stored else ""
        raise NotJoinedError(
            f"no credential for {settings.server} in {folder.credential}{other}: get a join token "
            "(`paceline nodes add`, or Add node on the cluster page) and pass it with --token"
        )
    joined = await _join(settings, settings.token)
    write_durably(folder.credential, msgspec.json.encode(joined), mode=0o600)
    log.info("joined %s as node %s", joined.server, joined.node_id)
    return joined


def _read(folder: AgentFolder) -> Credential | None:
    try:
        return msgspec.json.decode(folder.credential.read_bytes(), type=Credential)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise NotJoinedError(f"{folder.credential} is damaged ({error}): remove it and join again with a new token") from error


async def _join(settings: AgentSettings, token: str) -> Credential:
    deadline = time.monotonic() + JOIN_TIMEOUT_SECONDS
    warned, backoff = False, Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
    async with httpx.AsyncClient(base_url=settings.server, timeout=REQUEST_TIMEOUT_SECONDS) as http:
        while True:
            try:
                return await _exchange(http, settings, token)
            except httpx.HTTPError as error:
                if not warned:
                    log.warning("no answer from %s yet (%s); trying for %g s", settings.server, _named(error), JOIN_TIMEOUT_SECONDS)
                    warned = True
                if time.monotonic() > deadline:
                    raise JoinRefusedError(
                        f"{settings.server} cannot be reached for {JOIN_TIMEOUT_SECONDS:g} s ({_named(error)}); "
                        "check --server and that the coordinator runs"
                    ) from error
            await backoff.pause()


def _named(error: httpx.HTTPError) -> str:
    return str(error) or type(error).__name__


async def _exchange(http: httpx.AsyncClient, settings: AgentSettings, token: str) -> Credential:
    body = msgspec.json.encode(JoinRequest(token=token, name=settings.name))
    response = await http.post(JOIN_PATH, content=body, headers={"Content-Type": "application/json"})
    if response.status_code >= httpx.codes.INTERNAL_SERVER_ERROR or response.status_code == httpx.codes.TOO_MANY_REQUESTS:
        response.raise_for_status()
    if not response.is_success:
        raise JoinRefusedError(f"{settings.server} refused to let node {settings.name} join: {_problem(response)}")
    reply = msgspec.json.decode(response.content, type=JoinReply)
    return Credential(server=settings.server, node_id=reply.node_id, credential=reply.credential)


class _Problem(msgspec.Struct):
    title: str = ""
    detail: str = ""


def _problem(response: httpx.Response) -> str:
    """The reason that the server's answer gives."""
    try:
        problem = msgspec.json.decode(response.content, type=_Problem)
    except msgspec.DecodeError:
        return f"{response.status_code} {response.text[:200]}"
    return problem.detail or problem.title or str(response.status_code)
