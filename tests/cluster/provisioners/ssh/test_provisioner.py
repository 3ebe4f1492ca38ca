"""Nodes of several SSH servers: each is asked on its own port, and known by its own host key."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncssh
import psutil
import pytest

from paceline.cluster.provisioners.provisioner import LaunchPhase, ProvisionerContext, ProvisionerError, WantedNode
from paceline.cluster.provisioners.settings import SshSettings, ssh_node_name
from paceline.cluster.provisioners.ssh import provisioner as provisioner_module
from paceline.cluster.provisioners.ssh.provisioner import SshProvisioner
from paceline.cluster.provisioners.ssh.wheel import OwnWheel
from tests.cluster.provisioners.conformance import ProviderEngine, ProvisionerConformance
from tests.cluster.provisioners.ssh.test_connection import run_command
from tests.processes import kill_all
from tests.sshd import SshServer, needs_sshd, ssh_server
from tests.waiting import until

#: Stands for the Python of an environment that has Paceline. It shows its own words to `ps`, and SIGTERM ends it, as with an agent.
AGENT = '#!/bin/bash\nexec -a "$0 $*" sleep 300\n'


async def test_a_host_that_was_not_reached_has_started_nothing(tmp_path: Path) -> None:
    with socket.socket() as unused:  # bound and not listening: nobody answers
        unused.bind(("127.0.0.1", 0))
        host = {"host": "127.0.0.1", "port": unused.getsockname()[1]}
        settings = SshSettings.model_validate({"hosts": [host], "environment": sys.executable, "known_hosts": str(tmp_path / "known")})
        (tmp_path / "known").touch()
        provisioner = SshProvisioner(settings, ProvisionerContext(tmp_path, lambda _: None))
        name = ssh_node_name("lab", settings.hosts[0])
        with pytest.raises(ProvisionerError, match="no connection") as refused:
            await provisioner.launch(WantedNode(name, "lab", "http://127.0.0.1:1", "token"))
    assert refused.value.nothing_began


async def test_what_a_pool_chooses_for_its_environment_is_an_environment_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another torch by `pip_options` was not installed where an environment was there, and two pools of one account had the same one."""
    monkeypatch.setattr(provisioner_module, "_own_wheel", lambda: OwnWheel("paceline.whl", b"files", "torch==2.13.0\n"))
    keys = set()
    for choice in (
        {},
        {"pip_options": ["--index-url", "https://x/cu126"]},
        {"packages_of": "/opt/python"},
        {"python": "/usr/bin/python3.12"},
    ):
        settings = SshSettings.model_validate({"hosts": ["127.0.0.1"]} | choice)
        provisioner = SshProvisioner(settings, ProvisionerContext(tmp_path, lambda _: None))
        order, _ = await provisioner._order(WantedNode("node", "lab", "http://127.0.0.1:1", "token"), settings.hosts[0])
        keys.add(order["key"])
    assert len(keys) == 4


async def test_two_ports_of_one_address_are_two_hosts_each_with_its_own_key(tmp_path: Path) -> None:
    """A pool of machines behind one address: the second was held to the first one's host key, so that it could not be looked at nor ended."""
    user_key = asyncssh.generate_private_key("ssh-ed25519")
    user_key.write_private_key(tmp_path / "key")
    (tmp_path / "authorized").write_bytes(user_key.export_public_key())
    (tmp_path / "known_hosts").write_text("")
    hosts = []
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(2):
            host_key = await asyncio.to_thread(asyncssh.generate_private_key, "ssh-ed25519")
            listener = await stack.enter_async_context(
                await asyncssh.listen(
                    "127.0.0.1",
                    0,
                    server_host_keys=[host_key],
                    authorized_client_keys=str(tmp_path / "authorized"),
                    process_factory=run_command,
                    encoding=None,
                )
            )
            hosts.append({"host": "127.0.0.1", "port": listener.get_port(), "host_key": host_key.get_fingerprint("sha256")})
        places = {"key_file": str(tmp_path / "key"), "known_hosts": str(tmp_path / "known_hosts"), "folder": str(tmp_path / "there")}
        settings = SshSettings.model_validate({"hosts": hosts, "python": sys.executable, "user": getpass.getuser()} | places)
        provisioner = SshProvisioner(settings, ProvisionerContext(tmp_path, lambda _: None))
        handles = [f"ssh://{getpass.getuser()}@127.0.0.1:{host['port']}/lab" for host in hosts]
        seen = await provisioner.poll(handles)
        assert {handle: each.phase for handle, each in seen.items()} == dict.fromkeys(handles, LaunchPhase.ENDED)
        await provisioner.terminate(handles[1])


class SshHosts(ProviderEngine):
    """The provider with two real OpenSSH servers, and a program in the place of the agent."""

    def __init__(self, folder: Path, servers: tuple[SshServer, SshServer]) -> None:
        self.servers, self.top = servers, folder / "there"
        (folder / "python").write_text(AGENT)
        (folder / "python").chmod(0o755)
        places = {"environment": str(folder / "python"), "python": sys.executable, "folder": str(self.top)}
        hosts = [server.host for server in servers]
        settings = SshSettings.model_validate({"hosts": hosts, "key_file": str(servers[0].key_file)} | places)
        self.names = (ssh_node_name("work", settings.hosts[0]), ssh_node_name("work", settings.hosts[1]))
        self.unknown = f"ssh://{getpass.getuser()}@{servers[0].address}:{servers[0].port}/work-nobody"
        self.provisioner = SshProvisioner(settings, ProvisionerContext(folder, lambda _: None))
        self.down = contextlib.ExitStack()

    def processes(self) -> list[psutil.Process]:
        """The processes that were started for nodes, as others see them: the agent, or what prepares for it."""
        told = ((process, " ".join(process.info["cmdline"] or ())) for process in psutil.process_iter(["cmdline"]))
        return [process for process, words in told if str(self.top) in words and "sshd" not in words]

    def started(self) -> int:
        return len([*self.top.glob("nodes/*/order.json")])

    def break_down(self) -> None:
        self.down.close()

    def visible(self) -> str:
        """Command lines, and the files that others may read: the folders above are open to them in this test."""
        lines = [" ".join(process.info["cmdline"]) for process in self.processes()]
        return "\n".join([*lines, *map(str, self.top.glob("nodes/*")), *_open_to_others(self.top)])

    async def await_terminations(self) -> None:
        await until(lambda: not any(self.top.glob("nodes/*")), "what the nodes kept is gone", seconds=60)


def _open_to_others(top: Path) -> Iterator[str]:
    """What others can read in a folder. Nodes rename what they have written, so that files come and go while this looks."""
    for folder, folders, names in os.walk(top):
        if not _mode(Path(folder)) & 0o001:
            folders.clear()
            continue
        for path in (Path(folder, name) for name in names):
            mode = _mode(path)
            if stat.S_ISREG(mode) and mode & 0o077:
                with contextlib.suppress(FileNotFoundError):
                    yield path.read_text(errors="replace")


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return 0


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[SshHosts]:
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(ssh_server(tmp_path / name, address)) for name, address in (("one", "127.0.0.2"), ("two", "127.0.0.3"))
        ]
        (servers[1].home.parent / "user_key.pub").write_bytes((servers[0].home.parent / "user_key.pub").read_bytes())
        hosts = SshHosts(tmp_path, (servers[0], servers[1]))
        hosts.down = stack.pop_all()
        try:
            yield hosts
        finally:
            hosts.down.close()
            kill_all(hosts.processes())


@needs_sshd
class TestSsh(ProvisionerConformance):
    """The promises of every provider."""
