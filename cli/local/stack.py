"""A coordinator and its agents on this machine. Level-triggered: `bring_up` starts what is missing, `take_down` ends what is there.

Both hold the data folder's lock while they work. State (database, checkpoints, node credentials) stays in the data folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from paceline.cli.answers import parsed
from paceline.cli.api_types import Node
from paceline.cli.client import RestClient
from paceline.cli.errors import ApiProblemError, CliError, StackError
from paceline.cli.local.admin import ask_admin
from paceline.cli.local.exposure import EVERY_ADDRESS, LOOPBACK, SELF_SIGNED, Exposure, own_address, remember, remembered
from paceline.cli.local.layout import Layout
from paceline.cli.local.ports import hold
from paceline.cli.local.processes import alive, find, log_tail, recorded, start, stop, sweep
from paceline.cli.local.programs import COORDINATOR, StackPlan, agent_program, coordinator_program
from paceline.cli.local.torch_here import require_torch
from paceline.cli.render.formats import count
from paceline.cli.settings import ClientSettings, Setting, store, write_private
from paceline.cluster.states import NodeState
from paceline.credentials import FirstCredentials
from paceline.tls.trust import fingerprint_of

READY_TIMEOUT_S = 60.0
AGENTS_TIMEOUT_S = 90.0
LOCK_TIMEOUT_S = 60.0
POLL_S = 0.05
READY_STATES = ("ready", "cordoned")

Report = Callable[[str], None]


@dataclass(frozen=True)
class Stack:
    """A local stack that is up."""

    layout: Layout
    settings: ClientSettings
    started: tuple[str, ...]  # by this call; empty: it was up already
    exposure: Exposure | None = None  # None: only this machine reaches it

    @property
    def url(self) -> str:
        return self.settings.url

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 80

    def client(self) -> RestClient:
        return RestClient(self.settings)

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of the authority that other machines have to pin; None: none."""
        if self.exposure is None or not self.exposure.certificate:
            return None
        own = self.layout.own_authority.read_text() if self.exposure.certificate == SELF_SIGNED else ""
        return fingerprint_of(own or self.exposure.authority) if own or self.exposure.authority else None


def is_up(layout: Layout) -> bool:
    return alive(layout, COORDINATOR)


def bring_up(layout: Layout, plan: StackPlan, report: Report) -> Stack:
    if plan.agent_names:
        require_torch("an agent on this machine", ", or start the coordinator alone with --agents 0 and train on other machines")
    with locked(layout):
        started = _ensure_coordinator(layout, plan, report)
        settings = _ensure_credentials(layout, report)
        started += _ensure_agents(layout, plan, settings, report)
        return Stack(layout, settings, tuple(started), remembered(layout))


def take_down(layout: Layout, report: Report) -> int:
    """Agents first, so that their ranks end in order; then the coordinator; then stragglers. Returns how many were stopped."""
    with locked(layout):
        records = recorded(layout)
        running = sum(find(record) is not None for record in records)
        agents = [record for record in records if record.name != COORDINATOR]
        if agents:
            report(f"stopping {count(len(agents), 'agent')} and all ranks there; scripts have the time to save that their jobs give them")
        stop(layout, agents)
        stop(layout, [record for record in records if record.name == COORDINATOR])
        swept = sweep(layout)
        layout.server.unlink(missing_ok=True)
        remember(layout, None)
    return running + swept


def login_link(client: RestClient) -> str:
    """A single-use URL that signs a browser in as the key's user."""
    user = client.get("/auth/me")["user_id"]
    return str(client.create(f"/users/{user}/login-link", {})["url"])


@contextlib.contextmanager
def locked(layout: Layout) -> Iterator[None]:
    """A context that holds the data folder's lock: one `up` or `down` at a time."""
    layout.create()
    with layout.lock.open("w") as file:
        deadline = time.monotonic() + LOCK_TIMEOUT_S
        while not _try_lock(file.fileno()):
            if time.monotonic() > deadline:
                raise StackError(f"another up or down has held {layout.lock} for {LOCK_TIMEOUT_S:g} s", "wait for it to end")
            threading.Event().wait(POLL_S)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def join_command(client: RestClient) -> str:
    """The command line that another machine joins with. Its token works once, for an hour."""
    return str(client.create("/cluster/nodes", {})["command"])


def _ensure_coordinator(layout: Layout, plan: StackPlan, report: Report) -> list[str]:
    kept = remembered(layout)
    exposure = plan.exposure or kept
    if is_up(layout):
        if exposure != kept:
            raise _runs_otherwise(kept)
        return []
    if exposure and exposure.host == EVERY_ADDRESS:
        exposure = replace(exposure, address=own_address(EVERY_ADDRESS))
    elif exposure:
        own_address(exposure.address)  # refused where the machine has moved to another network since
    hosts = exposure.listens_on if exposure else (LOOPBACK,)
    wanted = _previous_port(layout) or plan.port
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(each) for each in hold(wanted, hosts)]
        port = sockets[0].getsockname()[1]
        if port != wanted:
            report(f"port {wanted} is used; taking {port}")
        if port != wanted or exposure != kept:
            stop(layout, recorded(layout))  # agents of a coordinator that died would go on with the old addresses, its and their own
        secured = exposure is not None and exposure.certificate
        where = [f"{'https' if secured and host != LOOPBACK else 'http'}://{host}:{port}" for host in hosts]
        report(f"starting the coordinator on {', '.join(where)}")
        layout.server.write_text(f"http://{LOOPBACK}:{port}")
        remember(layout, exposure)
        tokens = _make_credentials(layout, plan)
        start(layout, coordinator_program(layout, plan, hosts, port, exposure, sockets))
    _await_coordinator(layout, plan, tokens, report)
    return [COORDINATOR, *tokens]


def _await_coordinator(layout: Layout, plan: StackPlan, tokens: Mapping[str, str], report: Report) -> None:
    """Start the agents that join with these tokens, by name, and wait for the coordinator. Raises StackError, with the agents ended, where it does
    not start."""
    if tokens:
        report(_starting(list(tokens)))
    try:
        for name, token in tokens.items():
            start(layout, agent_program(layout, plan, _url(layout), name, token))
        with RestClient(_settings(layout, None)) as client:
            _await(layout, COORDINATOR, client.ready, READY_TIMEOUT_S)
    except StackError:
        stop(layout, [record for record in recorded(layout) if record.name in tokens])  # they would go on waiting for it
        raise


def _make_credentials(layout: Layout, plan: StackPlan) -> dict[str, str]:
    """Make the credentials of a new stack for its coordinator, so that its agents need not wait for it. Returns the agents' join tokens, by
    name; empty where there is a key already: agents may have joined with their own, and their nodes may have been removed since."""
    if layout.credentials.exists():
        return {}
    names = [name for name in plan.agent_names if not alive(layout, name) and not _credential(layout, name).exists()]
    made = FirstCredentials.make(_key_name(layout), len(names))
    made.hand_over(layout.data)
    store(layout.credentials, _url(layout), made.key)
    return dict(zip(names, made.join_tokens, strict=True))


def _runs_otherwise(kept: Exposure | None) -> StackError:
    how = "is on loopback only"
    if kept is not None:
        over = "TLS" if kept.certificate else "plain http"
        how = f"is open at {kept.address} {f'behind {kept.tls_url}' if kept.tls_url else f'over {over}'}"
    return StackError(
        f"the coordinator runs already, and {how}", "'paceline down' ends it and its ranks; then say 'paceline up --host' again"
    )


def _ensure_credentials(layout: Layout, report: Report) -> ClientSettings:
    """The stored key while the coordinator accepts it, else a new one in its place: the old one is revoked."""
    stored = _stored_key(layout)
    if stored is not None and _accepted(_settings(layout, stored)):
        key = stored
    else:
        report("minting an API key for this machine")
        key = ask_admin(layout.data, "api-key", "--name", _key_name(layout), "--replace")["key"]
    store(layout.credentials, _url(layout), key)
    return _settings(layout, key)


def _key_name(layout: Layout) -> str:
    """The name of this folder's key. One per data folder: stacks that share a PostgreSQL do not take each other's keys away."""
    return f"local {socket.gethostname()}:{layout.data}"


def _accepted(settings: ClientSettings) -> bool:
    with RestClient(settings) as client:
        try:
            client.get("/auth/me")
        except ApiProblemError as error:
            if error.status != 401:
                raise
            return False
        return True


def _ensure_agents(layout: Layout, plan: StackPlan, settings: ClientSettings, report: Report) -> list[str]:
    missing = [name for name in plan.agent_names if not alive(layout, name)]
    with RestClient(settings) as client:
        if missing:
            report(_starting(missing))
        for name in missing:
            _forget_if_removed(layout, client, name, report)
        returning = {name for name in missing if _follow_coordinator(_credential(layout, name), settings.url)}
        for name in missing:
            _start_agent(layout, plan, client, name, joins=name not in returning)
        for name in plan.agent_names:
            try:
                _await_agent(layout, client, name)
            except StackError:
                if name not in returning or _credential(layout, name).exists():
                    raise
                report(_was_removed(name))  # a moment before: its node was still to be told to leave, and has been told now
                _start_agent(layout, plan, client, name, joins=True)
                _await_agent(layout, client, name)
    return missing


def _start_agent(layout: Layout, plan: StackPlan, client: RestClient, name: str, *, joins: bool) -> None:
    token = client.create("/cluster/nodes", {})["token"] if joins else None
    start(layout, agent_program(layout, plan, _url(layout), name, token))


def _await_agent(layout: Layout, client: RestClient, name: str) -> None:
    _await(layout, name, lambda: _is_ready(layout, client, name), AGENTS_TIMEOUT_S)


def _was_removed(name: str) -> str:
    return f"{name} was removed from the cluster; it joins as a new node"


def _starting(names: Sequence[str]) -> str:
    return f"starting {count(len(names), 'agent')}: {', '.join(names)}"


def _credential(layout: Layout, name: str) -> Path:
    return layout.agent(name) / "credential.json"


def _forget_if_removed(layout: Layout, client: RestClient, name: str, report: Report) -> None:
    """Delete the credential of an agent whose node was removed from the cluster: it would be refused for ever. With a token it joins anew."""
    credential = _credential(layout, name)
    if not credential.exists():
        return
    node_id = json.loads(credential.read_text())["node_id"]
    try:
        state = client.get(f"/cluster/nodes/{node_id}")["state"]
    except ApiProblemError as error:
        if error.status != 404:
            raise
        state = NodeState.GONE
    if state == NodeState.GONE:
        report(_was_removed(name))
        credential.unlink()


def _follow_coordinator(credential: Path, url: str) -> bool:
    """Whether the agent has a credential. It names the address it was made for; the coordinator of this data folder may have moved."""
    if not credential.exists():
        return False
    document = json.loads(credential.read_text())
    if document.get("server") != url:
        write_private(credential, {**document, "server": url})
    return True


def _is_ready(layout: Layout, client: RestClient, name: str) -> bool:
    """Whether the coordinator has had a heartbeat of this very process; those of an earlier one do not count."""
    started_at = next(record.started_at for record in recorded(layout) if record.name == name)
    nodes = [node for document in client.pages("/cluster/nodes") if (node := parsed(document, Node)).name == name]
    return any(node.state in READY_STATES and _sent_heartbeat_within(node, time.time() - started_at) for node in nodes)


def _sent_heartbeat_within(node: Node, seconds: float) -> bool:
    return node.heartbeat_age_seconds is not None and node.heartbeat_age_seconds < seconds


def _await(layout: Layout, name: str, ready: Callable[[], bool], timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while not ready():
        if not alive(layout, name):
            message = f"{name} ended while starting; the end of {layout.log(name)}:\n{log_tail(layout, name)}"
            raise StackError(message, "'paceline down' stops what did start")
        if time.monotonic() > deadline:
            raise StackError(f"{name} is not ready after {timeout:g} s", f"see {layout.log(name)}; 'paceline down' stops what runs")
        threading.Event().wait(POLL_S)


def _stored_key(layout: Layout) -> str | None:
    try:
        return str(json.loads(layout.credentials.read_text())["api_key"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError) as error:
        raise CliError(f"{layout.credentials} is damaged: {error!r}", "delete it; 'paceline up' makes a new one") from error


def _previous_port(layout: Layout) -> int | None:
    """The port of a coordinator that was not taken down: its agents and their ranks may still live, and know that port."""
    return urlsplit(_url(layout)).port if layout.server.exists() else None


def _url(layout: Layout) -> str:
    return layout.server.read_text().strip()


def _settings(layout: Layout, key: str | None) -> ClientSettings:
    source = f"stack in {layout.data}"
    return ClientSettings(Setting(_url(layout), source), Setting(key, source))
