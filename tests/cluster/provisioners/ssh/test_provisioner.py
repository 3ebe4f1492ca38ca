"""Nodes of several SSH servers: each is asked on its own port, and known by its own host key."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import socket
import sys
from pathlib import Path

import asyncssh
import pytest

from paceline.cluster.provisioners.provisioner import LaunchPhase, ProvisionerContext, ProvisionerError, WantedNode
from paceline.cluster.provisioners.settings import SshSettings, ssh_node_name
from paceline.cluster.provisioners.ssh.provisioner import SshProvisioner
from tests.cluster.provisioners.ssh.test_connection import run_command


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
