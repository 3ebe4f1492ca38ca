"""Host keys of a real OpenSSH server that has several, as every Debian has: none is taken for a changed one, and no other machine is let through."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.cluster.provisioners.provisioner import ProvisionerError
from paceline.cluster.provisioners.settings import SshSettings
from paceline.cluster.provisioners.ssh.connection import connected
from paceline.cluster.provisioners.ssh.host_keys import SshTarget
from tests.cluster.provisioners.ssh.test_connection import no_secret
from tests.sshd import HOST_KEY_KINDS, SshServer, needs_sshd, ssh_server

pytestmark = needs_sshd


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    """A server with the three host keys that Debian gives it."""
    with ssh_server(tmp_path_factory.mktemp("debian"), "127.0.0.1") as server:
        yield server


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    """Another machine, whose keys are its own."""
    with ssh_server(tmp_path_factory.mktemp("stranger"), "127.0.0.1") as server:
        yield server


async def sign_in(server: SshServer, folder: Path, known_hosts: str = "", host_key: str | None = None, host: str = "127.0.0.1") -> str:
    """Sign in. Returns what is said there, or raises the refusal."""
    file = folder / "known_hosts"
    file.write_text(known_hosts)
    settings = SshSettings.model_validate({"hosts": [host], "key_file": str(server.key_file), "known_hosts": str(file)})
    async with connected(settings, SshTarget(host, server.port, getpass.getuser(), host_key), no_secret) as connection:
        return str((await connection.run("echo signed in", check=True)).stdout).strip()


async def refusal(
    server: SshServer, folder: Path, known_hosts: str = "", host_key: str | None = None, host: str = "127.0.0.1"
) -> ProvisionerError:
    with pytest.raises(ProvisionerError) as refused:
        await sign_in(server, folder, known_hosts, host_key, host)
    return refused.value


def line(server: SshServer, kind: str, name: str = "127.0.0.1") -> str:
    return f"[{name}]:{server.port} {server.host_keys[kind].public}\n"


@pytest.mark.parametrize("kind", HOST_KEY_KINDS)
async def test_a_host_is_let_through_by_the_one_key_that_is_known_of_it(debian: SshServer, tmp_path: Path, kind: str) -> None:
    """`ssh` stores one key at the first connection: it was told to have changed where another kind was asked for."""
    assert await sign_in(debian, tmp_path, line(debian, kind)) == "signed in"


@pytest.mark.parametrize("kind", HOST_KEY_KINDS)
async def test_a_fingerprint_of_any_of_its_keys_may_be_given(debian: SshServer, tmp_path: Path, kind: str) -> None:
    assert await sign_in(debian, tmp_path, host_key=debian.host_keys[kind].fingerprint) == "signed in"


async def test_a_fingerprint_is_enough_beside_a_known_key_of_a_machine_before(
    debian: SshServer, stranger: SshServer, tmp_path: Path
) -> None:
    old = f"[127.0.0.1]:{debian.port} {stranger.host_keys['rsa'].public}\n"
    assert await sign_in(debian, tmp_path, old, debian.host_keys["ed25519"].fingerprint) == "signed in"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_an_unknown_host_shows_the_key_and_the_file_to_compare(debian: SshServer, tmp_path: Path, host: str) -> None:
    """A host that is given by its name broke the provider in place of being refused."""
    refused = await refusal(debian, tmp_path, host=host)
    assert f"is not known: {debian.host_keys['ed25519'].fingerprint} (ED25519)" in str(refused)
    assert "/etc/ssh/ssh_host_ed25519_key.pub" in refused.remedy


async def test_a_host_by_name_is_known_by_its_address_too(debian: SshServer, tmp_path: Path) -> None:
    assert await sign_in(debian, tmp_path, line(debian, "ecdsa"), host="localhost") == "signed in"


async def test_a_server_of_one_kind_is_compared_by_the_file_of_that_kind(tmp_path: Path) -> None:
    with ssh_server(tmp_path / "old", "127.0.0.1", kinds=("rsa",)) as server:
        refused = await refusal(server, tmp_path)
        assert f"{server.host_keys['rsa'].fingerprint} (RSA)" in str(refused)
        assert "/etc/ssh/ssh_host_rsa_key.pub" in refused.remedy


@pytest.mark.parametrize("kinds", [("ed25519",), ("rsa",), HOST_KEY_KINDS])
async def test_another_machine_has_a_changed_key(debian: SshServer, stranger: SshServer, tmp_path: Path, kinds: tuple[str, ...]) -> None:
    known = "".join(f"[127.0.0.1]:{stranger.port} {debian.host_keys[kind].public}\n" for kind in kinds)
    refused = await refusal(stranger, tmp_path, known)
    assert "has changed" in str(refused)
    assert f"ssh-keygen -R [127.0.0.1]:{stranger.port}" in refused.remedy


async def test_a_known_kind_that_is_not_shown_is_not_called_changed(debian: SshServer, tmp_path: Path) -> None:
    with ssh_server(tmp_path / "new", "127.0.0.1", kinds=("ed25519",)) as server:
        refused = await refusal(server, tmp_path, f"[127.0.0.1]:{server.port} {debian.host_keys['rsa'].public}\n")
        assert "is not known" in str(refused)
        assert "known_hosts has its RSA key alone" in str(refused)
        assert "changed" not in str(refused)


async def test_a_given_fingerprint_that_no_key_has_is_refused(debian: SshServer, stranger: SshServer, tmp_path: Path) -> None:
    refused = await refusal(stranger, tmp_path, host_key=debian.fingerprint)
    assert str(refused).endswith(f"and not {debian.fingerprint}")
    assert all(each.fingerprint in str(refused) for each in stranger.host_keys.values())


async def test_a_revoked_key_is_never_accepted(debian: SshServer, tmp_path: Path) -> None:
    refused = await refusal(debian, tmp_path, f"@revoked * {debian.host_keys['ed25519'].public}\n", debian.fingerprint)
    assert "revoked" in str(refused)
