"""Signing in, against an SSH server in this process: host keys, private keys, and what a refusal says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from paceline.cluster.provisioners.provisioner import ProvisionerError
from paceline.cluster.provisioners.settings import SshSettings
from paceline.cluster.provisioners.ssh.connection import call, connected, send
from paceline.cluster.provisioners.ssh.host_keys import SshTarget
from tests.waiting import until

#: Stands for an agent that takes a moment to leave.
SLOW_TO_END = """
import pathlib, signal, sys, time

def leave(*_):
    time.sleep(1.5)
    sys.exit(0)

signal.signal(signal.SIGTERM, leave)
pathlib.Path(sys.argv[1], "listens").touch()
time.sleep(60)
"""


def no_secret(name: str) -> str | None:
    return None


async def run_command(process: asyncssh.SSHServerProcess[bytes]) -> None:
    """Run what the client asks for, as a real server does."""
    child = await asyncio.create_subprocess_shell(
        process.command or "true", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, errors = await child.communicate(await process.stdin.read())
    process.stdout.write(output)
    process.stderr.write(errors)
    process.exit(child.returncode or 0)


@contextlib.asynccontextmanager
async def server(folder: Path) -> AsyncIterator[tuple[SshSettings, SshTarget]]:
    host_key, user_key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    user_key.write_private_key(folder / "key")
    (folder / "authorized").write_bytes(user_key.export_public_key())
    (folder / "known_hosts").write_text("")
    async with await asyncssh.listen(
        "127.0.0.1",
        0,
        server_host_keys=[host_key],
        authorized_client_keys=str(folder / "authorized"),
        process_factory=run_command,
        encoding=None,
    ) as listener:
        document = {"hosts": ["127.0.0.1"], "key_file": str(folder / "key"), "known_hosts": str(folder / "known_hosts")}
        settings = SshSettings.model_validate(document)
        yield settings, SshTarget("127.0.0.1", listener.get_port(), "ada", host_key.get_fingerprint("sha256"))


async def refusal(settings: SshSettings, target: SshTarget) -> ProvisionerError:
    with pytest.raises(ProvisionerError) as refused:
        async with connected(settings, target, no_secret):
            raise AssertionError("signed in")
    return refused.value


async def test_a_function_is_called_there_and_a_file_is_sent_for_its_owner_alone(tmp_path: Path) -> None:
    async with server(tmp_path) as (settings, target), connected(settings, target, no_secret) as connection:
        await send(connection, str(tmp_path / "it's here"), b"\0wheel")
        assert (tmp_path / "it's here").read_bytes() == b"\0wheel"
        assert (tmp_path / "it's here").stat().st_mode & 0o077 == 0
        seen = await call(connection, sys.executable, "look", str(tmp_path), ["lab-1"])
        assert seen == {"lab-1": {"phase": "ended", "reason": "it is not on this machine any more"}}
        with pytest.raises(ProvisionerError, match="no-python"):
            await call(connection, "no-python", "look", str(tmp_path), [])


async def test_a_host_key_is_known_given_or_refused_with_its_fingerprint(tmp_path: Path) -> None:
    async with server(tmp_path) as (settings, target):
        fingerprint = str(target.host_key)
        unknown = await refusal(settings, replace(target, host_key=None))
        assert str(unknown) == f"the host key of {target} is not known: {fingerprint} (ED25519)"
        assert f"host_key: {fingerprint}" in unknown.remedy
        other = asyncssh.generate_private_key("ssh-ed25519")
        wrong = await refusal(settings, replace(target, host_key=other.get_fingerprint("sha256")))
        assert str(wrong) == f"the host key of {target} is {fingerprint} (ED25519), and not {other.get_fingerprint('sha256')}"
        public = other.export_public_key().decode().strip()
        (tmp_path / "known_hosts").write_text(f"[127.0.0.1]:{target.port} {public}\n")
        assert "has changed" in str(await refusal(settings, replace(target, host_key=None)))


async def test_a_key_that_is_not_let_in_and_a_file_that_is_none_are_told_apart(tmp_path: Path) -> None:
    async with server(tmp_path) as (settings, target):
        asyncssh.generate_private_key("ssh-ed25519").write_private_key(tmp_path / "stranger")
        refused = await refusal(settings.model_copy(update={"key_file": str(tmp_path / "stranger")}), target)
        assert "authorized_keys" in refused.remedy
        (tmp_path / "text").write_text("a secret that is no key")
        unread = await refusal(settings.model_copy(update={"key_file": str(tmp_path / "text")}), target)
        assert "it is no private key" in str(unread)
        assert "a secret" not in str(unread) + unread.remedy
        unset = await refusal(settings.model_copy(update={"password_secret": "PACELINE_SSH_LAB"}), target)
        assert str(unset) == "the coordinator has no variable PACELINE_SSH_LAB"


class HangsUp(asyncssh.SSHServer):
    """Ends the connection while somebody signs in, as OpenSSH does with an account that may not."""

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self.connection = conn

    def begin_auth(self, username: str) -> bool:
        self.connection.abort()
        return True


async def test_a_server_that_hangs_up_is_told_from_one_that_is_not_there(tmp_path: Path) -> None:
    """Of an account that was locked, people were told that no SSH server runs there."""
    async with server(tmp_path) as (settings, target):
        pass
    absent = await refusal(settings, target)
    assert "account" not in absent.remedy
    host_key = asyncssh.generate_private_key("ssh-ed25519")
    async with await asyncssh.listen("127.0.0.1", 0, server_host_keys=[host_key], server_factory=HangsUp) as listener:
        target = SshTarget("127.0.0.1", listener.get_port(), "ada", host_key.get_fingerprint("sha256"))
        hung_up = await refusal(settings, target)
    assert "the account may sign in" in hung_up.remedy


async def test_a_node_of_the_same_name_waits_until_the_one_before_is_cleared_away(tmp_path: Path) -> None:
    """A pool that shrank and grew again at once: the host took the agent that was just ending for the new one, or swept the new one away."""
    order: dict[str, object] = {
        "name": "lab",
        "folder": str(tmp_path),
        "python": sys.executable,
        "environment": sys.executable,
        "key": "",
        "packages_of": "",
    }
    order |= {"token": "", "arguments": ["--help"], "pip_options": [], "wheel": "", "constraints": "", "program": SLOW_TO_END}
    async with server(tmp_path) as (settings, target), connected(settings, target, no_secret) as connection:

        async def ask(function: str, *arguments: object) -> dict[str, Any]:
            return dict(await call(connection, sys.executable, function, *arguments))

        assert (await ask("start", order))["state"] == "started"
        first = json.loads((tmp_path / "nodes" / "lab" / "status.json").read_text())["pid"]
        await until((tmp_path / "nodes" / "lab" / "listens").exists, "the agent listens", seconds=20)
        assert (await ask("end", str(tmp_path), "lab"))["state"] == "ending"
        assert (await ask("end", str(tmp_path), "lab"))["state"] in ("ending", "gone")
        assert (await ask("prepare", order))["state"] == "ready"
        assert not (tmp_path / "nodes" / "lab").exists()
        assert (await ask("start", order))["state"] == "started"
        second = json.loads((tmp_path / "nodes" / "lab" / "status.json").read_text())["pid"]
        assert second != first
        assert (await ask("look", str(tmp_path), ["lab"]))["lab"]["phase"] != "ended"
        await until((tmp_path / "nodes" / "lab" / "listens").exists, "the second agent listens", seconds=20)
        await ask("end", str(tmp_path), "lab")
        assert (await ask("prepare", order))["state"] == "ready"
