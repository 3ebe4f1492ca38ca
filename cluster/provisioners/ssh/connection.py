"""One SSH connection of the coordinator to a machine: signed in, its host key checked, and every failure in words with a way out."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import asyncssh

from paceline.cluster.provisioners.provisioner import ProvisionerError
from paceline.cluster.provisioners.settings import SshHost, SshSettings

CONNECT_SECONDS = 10.0
COMMAND_SECONDS = 45.0
ON_HOST = "on_host.py"


@dataclass(frozen=True)
class SshTarget:
    """Where to sign in, and as whom."""

    host: str
    port: int
    user: str | None
    host_key: str | None

    @classmethod
    def of(cls, settings: SshSettings, host: SshHost) -> SshTarget:
        """Return what a pool and one of its hosts say together."""
        return cls(host.host, host.port or settings.port, host.user or settings.user, host.host_key)

    def __str__(self) -> str:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user}@{name}:{self.port}" if self.user else f"{name}:{self.port}"


class HostKeyCheck(asyncssh.SSHClient):
    """Accepts a host key that no file of known hosts has, if its fingerprint is the given one; remembers what was shown."""

    def __init__(self, fingerprint: str | None) -> None:
        self.fingerprint = fingerprint
        self.shown: str | None = None

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.shown = key.get_fingerprint("sha256")
        return self.shown == self.fingerprint


@contextlib.asynccontextmanager
async def connected(
    settings: SshSettings, target: SshTarget, secret: Callable[[str], str | None]
) -> AsyncIterator[asyncssh.SSHClientConnection]:
    """A context in which the coordinator is signed in on a machine. Raises ProvisionerError."""
    check = HostKeyCheck(target.host_key)
    connection = await _connect(settings, target, _password(settings, secret), check)
    try:
        yield connection
    except (OSError, asyncssh.Error) as error:
        raise ProvisionerError(f"the connection to {target} broke: {error}") from error
    finally:
        connection.close()


async def _connect(settings: SshSettings, target: SshTarget, password: str | None, check: HostKeyCheck) -> asyncssh.SSHClientConnection:
    options: dict[str, Any] = {"username": target.user} if target.user else {}
    if settings.key_file:
        options["client_keys"] = [_private_key(settings.key_file)]
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            return await asyncssh.connect(
                target.host,
                target.port,
                known_hosts=_known_hosts(settings),
                server_host_key_algs="default",
                client_factory=lambda: check,
                password=password,
                keepalive_interval=15,
                **options,
            )
    except TimeoutError as error:
        message = f"{target} has not answered within {CONNECT_SECONDS:.0f} s"
        raise ProvisionerError(message, "check that the machine is on, and its name and port") from error
    except asyncssh.HostKeyNotVerifiable as error:
        raise _unknown_key(settings, target, check) from error
    except asyncssh.PermissionDenied as error:
        how = "the key or password" if settings.key_file or settings.password_secret else "every key of the coordinator"
        remedy = f"put the coordinator's public key into ~/.ssh/authorized_keys there (ssh-copy-id {target.user or ''}{'@' if target.user else ''}{target.host})"
        raise ProvisionerError(f"{target} refuses {how}", f"{remedy}, or name another key_file or user") from error
    except (OSError, asyncssh.Error) as error:
        raise ProvisionerError(
            f"no connection to {target}: {error}", "check the name, the port, and that an SSH server runs there"
        ) from error


def _private_key(path: str) -> asyncssh.SSHKey:
    """A private key of the coordinator's machine. What is in the file is never told."""
    try:
        return asyncssh.read_private_key(str(Path(path).expanduser()))
    except asyncssh.KeyEncryptionError as error:
        raise ProvisionerError(f"key_file {path} needs a passphrase", "load it into an SSH agent, or use a key without one") from error
    except (OSError, asyncssh.KeyImportError) as error:
        said = error.strerror if isinstance(error, OSError) else "it is no private key"
        raise ProvisionerError(f"key_file {path} cannot be read: {said}", "name a private key on the coordinator's machine") from error


def _password(settings: SshSettings, secret: Callable[[str], str | None]) -> str | None:
    if settings.password_secret is None:
        return None
    found = secret(settings.password_secret)
    if not found:
        raise ProvisionerError(
            f"the coordinator has no variable {settings.password_secret}", "set it in the coordinator's environment and start it again"
        )
    return found


def _known_hosts(settings: SshSettings) -> Any:
    path = Path(settings.known_hosts or "~/.ssh/known_hosts").expanduser()
    if not path.exists():
        if settings.known_hosts:
            raise ProvisionerError(f"known_hosts {path} is not there", "name a file on the coordinator's machine, or leave it out")
        return asyncssh.import_known_hosts("")
    try:
        return asyncssh.read_known_hosts(str(path))
    except (OSError, ValueError) as error:
        raise ProvisionerError(f"known_hosts {path} cannot be read: {error}", "correct the file") from error


def _unknown_key(settings: SshSettings, target: SshTarget, check: HostKeyCheck) -> ProvisionerError:
    """The refusal of a host key: nobody knows it, or it is another one than the one that is known."""
    shown = check.shown or "of a kind that has no fingerprint"
    if target.host_key:
        return ProvisionerError(
            f"the host key of {target} is {shown}, and not {target.host_key}",
            "another machine may answer there: compare on the machine itself with 'ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub'",
        )
    known = _known_hosts(settings).match(target.host, target.host, target.port)[0]
    if known:
        return ProvisionerError(
            f"the host key of {target} has changed: it is {shown} now, and known_hosts has another one",
            f"if the machine was set up anew, remove the old key with 'ssh-keygen -R {target.host}'; else another machine answers there",
        )
    return ProvisionerError(
        f"the host key of {target} is not known: {shown}",
        f"compare it on the machine with 'ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub'; then give host_key: {shown} with the host, "
        "or add it to known_hosts of the coordinator with ssh-keyscan",
    )


async def call(connection: asyncssh.SSHClientConnection, python: str, function: str, *arguments: Any) -> Any:
    """Call a function of `on_host.py` there, and return its answer. Everything travels through stdin: `ps` shows the Python alone.

    Raises ProvisionerError with what it said where it failed."""
    text = f"{program()}\nprint('\\n' + json.dumps({function}(*json.loads({json.dumps(arguments)!r}))))\n"
    try:
        done = await connection.run(f"{_quoted(python)} -", input=text, encoding="utf-8", timeout=COMMAND_SECONDS)
    except (asyncssh.TimeoutError, TimeoutError) as error:
        raise ProvisionerError(f"{python} on the machine has not answered within {COMMAND_SECONDS:.0f} s") from error
    if done.exit_status != 0:
        said = _last_line(done.stderr) or _last_line(done.stdout) or "it said nothing"
        raise ProvisionerError(
            f"{python} on the machine has failed with status {done.exit_status}: {said}", "give `python` of one that is installed there"
        )
    return json.loads(_last_line(done.stdout))


async def send(connection: asyncssh.SSHClientConnection, path: str, content: bytes) -> None:
    """Write a file there, in one step, readable by its owner alone."""
    name = _quoted(path)
    done = await connection.run(
        f"umask 077 && cat > {name}.part && mv {name}.part {name}", input=content, encoding=None, timeout=COMMAND_SECONDS
    )
    if done.exit_status != 0:
        raise ProvisionerError(f"{path} cannot be written: {_last_line(done.stderr)}", "check the free space and the folder")


def program() -> str:
    """The text of `on_host.py`."""
    return files("paceline.cluster.provisioners.ssh").joinpath(ON_HOST).read_text()


def _quoted(word: str) -> str:
    """A word for a shell. A leading ~/ is left to the shell."""
    home, rest = ("~/", word[2:]) if word.startswith("~/") else ("", word)
    return home + "'" + rest.replace("'", "'\\''") + "'"


def _last_line(text: object) -> str:
    said = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text or "")
    lines = said.strip().splitlines()
    return lines[-1].strip() if lines else ""
