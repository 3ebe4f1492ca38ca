"""Joining a cluster: a single-use token is exchanged for a credential, which DATA keeps."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time

import httpx
import msgspec

from paceline.cluster.agent.errors import JoinRefusedError, NotJoinedError
from paceline.cluster.agent.folders import AgentFolder
from paceline.cluster.agent.settings import AgentSettings
from paceline.cluster.protocol import JOIN_PATH, JoinReply, JoinRequest
from paceline.monitoring.backoff import Backoff
from paceline.monitoring.files import write_durably
from paceline.tls.fetch import fetch_authority
from paceline.tls.trust import TrustError, context_of, split_token

JOIN_TIMEOUT_SECONDS = 120.0  # a coordinator that is being started beside us
CONNECT_TIMEOUT_SECONDS = 10.0
ANSWER_TIMEOUT_SECONDS = 60.0  # long: an answer that is not waited for has used the token
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.3, 0.45

log = logging.getLogger(__name__)


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """The node's credential, as in `AgentFolder.credential`, readable by its owner only."""

    server: str
    node_id: str
    credential: str
    authority: str = ""  # PEM: the one authority that the server's certificate must be of; empty: one that this machine knows

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The context for connections to an https server; None: plain http."""
        return tls_of(self.server, self.authority)


async def credential_for(settings: AgentSettings, folder: AgentFolder) -> Credential:
    """The stored credential if it is for this server, else a new one in exchange for the token."""
    stored = _read(folder)
    if stored is not None and stored.server == settings.server:
        return msgspec.structs.replace(stored, authority=settings.authority) if settings.authority else stored
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


def tls_of(server: str, authority: str) -> ssl.SSLContext | None:
    """Return the context for connections to `server`; None where that is plain http. Raises TrustError where `authority` is no certificate."""
    if not server.startswith("https:"):
        return None
    return context_of(authority) if authority else ssl.create_default_context()


async def _join(settings: AgentSettings, token: str) -> Credential:
    deadline = time.monotonic() + JOIN_TIMEOUT_SECONDS
    warned, backoff = False, Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
    try:
        secret, fingerprint = split_token(token)
        while True:
            try:
                return await _exchange(settings, secret, await _authority(settings, fingerprint))
            except httpx.HTTPError as error:
                if not warned:
                    log.warning("no answer from %s yet (%s); trying for %g s", settings.server, _named(error), JOIN_TIMEOUT_SECONDS)
                    warned = True
                if time.monotonic() > deadline:
                    raise JoinRefusedError(
                        f"{settings.server} cannot be reached for {JOIN_TIMEOUT_SECONDS:g} s ({_named(error)}); "
                        "check --server and that the coordinator runs"
                    ) from error
                _raise_if_not_believed(settings, error)
            await backoff.pause()
    except TrustError as error:
        raise JoinRefusedError(str(error)) from error


async def _authority(settings: AgentSettings, fingerprint: str | None) -> str:
    """The authority to believe, as PEM; empty: those of this machine. Raises TrustError where the server shows another than the token says."""
    if settings.authority is not None or fingerprint is None or not settings.server.startswith("https:"):
        return settings.authority or ""
    return await asyncio.to_thread(fetch_authority, settings.server, fingerprint)


def _raise_if_not_believed(settings: AgentSettings, error: httpx.HTTPError) -> None:
    """Raise JoinRefusedError where the certificate is the reason: waiting does not change it."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        raise JoinRefusedError(
            f"{settings.server} shows a certificate that is not believed here ({error}); a token that 'paceline nodes add' prints for an https "
            "address brings the authority of a coordinator's own along, and --ca FILE names another one"
        ) from error


def _named(error: httpx.HTTPError) -> str:
    return str(error) or type(error).__name__


async def _exchange(settings: AgentSettings, secret: str, authority: str) -> Credential:
    body = msgspec.json.encode(JoinRequest(token=secret, name=settings.name))
    tls = tls_of(settings.server, authority)
    timeout = httpx.Timeout(ANSWER_TIMEOUT_SECONDS, connect=CONNECT_TIMEOUT_SECONDS)
    async with httpx.AsyncClient(base_url=settings.server, timeout=timeout, verify=tls or False) as http:
        response = await http.post(JOIN_PATH, content=body, headers={"Content-Type": "application/json"})
    if response.status_code >= httpx.codes.INTERNAL_SERVER_ERROR or response.status_code == httpx.codes.TOO_MANY_REQUESTS:
        response.raise_for_status()
    if not response.is_success:
        raise JoinRefusedError(f"{settings.server} refused to let node {settings.name} join: {_problem(response)}")
    reply = msgspec.json.decode(response.content, type=JoinReply)
    return Credential(server=settings.server, node_id=reply.node_id, credential=reply.credential, authority=authority)


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
