"""Nodes on machines that an SSH server lets the coordinator into: Paceline is installed there, its agent started, and both removed again."""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import asyncssh

from paceline.cluster.provisioners.passed_names import pass_env_words
from paceline.cluster.provisioners.provisioner import LaunchPhase, ProvisionerContext, ProvisionerError, SeenLaunch, WantedNode
from paceline.cluster.provisioners.settings import SshHost, SshSettings, ssh_node_name
from paceline.cluster.provisioners.ssh.connection import call, connected, send
from paceline.cluster.provisioners.ssh.host_keys import SshTarget
from paceline.cluster.provisioners.ssh.program import node_program
from paceline.cluster.provisioners.ssh.wheel import OwnWheel, own_wheel

#: What a machine is told, as `on_host.py` reads it.
Order = dict[str, Any]
_HANDLE = re.compile(
    r"ssh://(?:(?P<user>[^/]+)@)?(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^/:]+)):(?P<port>[0-9]+)/(?P<name>[^#]+)(?:#(?P<launch>.+))?"
)


class SshProvisioner:
    """Starts one node on each of the hosts in its settings; a handle is `ssh://user@host:port/NODE#LAUNCH`, of before without the launch."""

    def __init__(self, settings: SshSettings, context: ProvisionerContext) -> None:
        self.settings, self.context = settings, context

    async def launch(self, request: WantedNode) -> str:
        """Start the node of the host that has its name, behind the connection: installing goes on there. Raises ProvisionerError."""
        began = False
        try:
            host = self._host_of(request)
            target = SshTarget.of(self.settings, host)
            _check_reachable(request.server, target)
            order, wheel = await self._order(request, host)
            async with connected(self.settings, target, self.context.secret) as connection:
                if await self._prepare(connection, target, order, wheel):
                    began = True
                    await call(connection, self.settings.python, "start", order)
        except ProvisionerError as error:
            error.nothing_began = not began
            raise
        handle = f"ssh://{target}/{request.name}"
        return f"{handle}#{request.launch}" if request.launch else handle

    async def _prepare(self, connection: asyncssh.SSHClientConnection, target: SshTarget, order: Order, wheel: OwnWheel | None) -> bool:
        """Send the machine what it needs. Returns whether the node is to be started: it may run already."""
        needed = await call(connection, self.settings.python, "prepare", {**order, "program": "", "token": ""})
        if needed["state"] == "ending":
            raise ProvisionerError(f"{target} still ends the node {order['name']} that it had before", "wait; it is asked again by itself")
        if needed["state"] == "taken":
            raise ProvisionerError(
                f"{target} has a node {order['name']} of another launch, by the coordinator at {needed['server']}",
                f"remove it there with 'paceline nodes remove {order['name']}', or give the pool another `folder`; where nobody needs that node "
                f"any more, end its agent and remove {self.settings.folder}/nodes/{order['name']} on the machine, with its checkpoints",
            )
        if needed["state"] == "wheel" and wheel is not None:
            await send(connection, needed["path"], wheel.contents)
        return str(needed["state"]) != "there"

    async def poll(self, handles: Sequence[str]) -> Mapping[str, SeenLaunch]:
        """Look at nodes, with one connection to each machine. One that cannot be reached now says nothing: its nodes are left out.

        Raises ProvisionerError where none can be reached."""
        by_target: dict[SshTarget, dict[str, str]] = {}
        for handle in handles:
            target, name, _ = self._parse(handle)
            by_target.setdefault(target, {})[name] = handle
        answers = await asyncio.gather(*(self._look(*each) for each in by_target.items()), return_exceptions=True)
        found: dict[str, SeenLaunch] = {}
        refusals = list[ProvisionerError]()
        for answer in answers:
            if isinstance(answer, ProvisionerError):
                refusals.append(answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found |= answer
        if refusals and not found:
            raise refusals[0]
        return found

    async def _look(self, target: SshTarget, names: Mapping[str, str]) -> dict[str, SeenLaunch]:
        async with connected(self.settings, target, self.context.secret) as connection:
            seen = await call(connection, self.settings.python, "look", self.settings.folder, list(names))
        return {names[name]: SeenLaunch(LaunchPhase(each["phase"]), each["reason"]) for name, each in seen.items()}

    async def terminate(self, handle: str) -> None:
        """Stop the node's agent and its ranks, and remove what it kept; the machine goes on with that by itself. Raises ProvisionerError."""
        target, name, launch = self._parse(handle)
        async with connected(self.settings, target, self.context.secret) as connection:
            await call(connection, self.settings.python, "end", self.settings.folder, name, launch)

    def _host_of(self, request: WantedNode) -> SshHost:
        for host in self.settings.hosts:
            if ssh_node_name(request.pool or None, host) == request.name:
                return host
        raise ProvisionerError(f"no host of the pool has the node {request.name}", "list the host again, or remove this node")

    def _parse(self, handle: str) -> tuple[SshTarget, str, str]:
        """The machine, the name and the launch of a node; the launch is empty in handles of before."""
        found = _HANDLE.fullmatch(handle)
        if found is None:
            raise ProvisionerError(f"{handle!r} is no handle of the ssh provider")
        address, port, user = found["v6"] or found["host"], int(found["port"]), found["user"]
        listed = (SshTarget.of(self.settings, each) for each in self.settings.hosts)
        host_key = next((each.host_key for each in listed if (each.host, each.port) == (address, port)), None)
        return SshTarget(address, port, user, host_key), found["name"], found["launch"] or ""

    async def _order(self, request: WantedNode, host: SshHost) -> tuple[Order, OwnWheel | None]:
        """What the machine is told, and the wheel that it may need."""
        wheel = None if self.settings.environment else await asyncio.to_thread(_own_wheel)
        order = {
            "name": request.name,
            "launch": request.launch,
            "server": request.server,
            "folder": self.settings.folder,
            "python": self.settings.python,
            "environment": self.settings.environment or "",
            "packages_of": self.settings.packages_of or "",
            "pip_options": self.settings.pip_options,
            "key": wheel.key([self.settings.python, self.settings.packages_of or "", *self.settings.pip_options]) if wheel else "",
            "wheel": wheel.name if wheel else "",
            "constraints": wheel.constraints if wheel else "",
            "token": request.join_token,
            "variables_file": self.settings.variables_file or "",
            "arguments": agent_arguments(self.settings, host, request),
            "program": node_program(),
        }
        return order, wheel


@functools.cache
def _own_wheel() -> OwnWheel:
    return own_wheel()


def agent_arguments(settings: SshSettings, host: SshHost, request: WantedNode) -> list[str]:
    """The agent's options, without the token and its folder."""
    arguments = [*request.server_words, "--name", request.name]
    for flag, value in (
        ("--slots", host.slots or request.slots),
        ("--address", host.address),
        ("--checkpoints", settings.checkpoints),
        ("--gpus", settings.gpus),
        ("--drain-seconds", settings.drain_seconds),
        ("--drain-on-term", settings.drain_seconds),  # where there is no systemd, a machine that is restarted says no more than this
    ):
        arguments += [flag, str(value)] if value is not None else []
    arguments += [*pass_env_words(settings.pass_env), *settings.agent_words]
    return arguments + [word for key, value in sorted(request.labels.items()) for word in ("--label", f"{key}={value}")]


def _check_reachable(server: str, target: SshTarget) -> None:
    """Refuse to start an agent that could never reach the coordinator."""
    host = urlsplit(server).hostname or ""
    if _is_loopback(host) and not _is_loopback(target.host):
        raise ProvisionerError(
            f"{target} cannot reach the coordinator at {server}, which is its own loopback address",
            "run 'paceline down', then 'paceline up --host ADDRESS'; or give the pool a `server` that the machine reaches",
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
