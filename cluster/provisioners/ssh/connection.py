"""One SSH connection of the coordinator to a machine: signed in, its host key checked, and every failure in words with a way out."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import asyncssh

from paceline.cluster.provisioners.provisioner import ProvisionerError
from paceline.cluster.provisioners.settings import SshSettings
from paceline.cluster.provisioners.ssh.host_keys import HostKeyRounds, SshTarget
from paceline.cluster.provisioners.ssh.program import call_program

CONNECT_SECONDS = 10.0
COMMAND_SECONDS = 45.0


@contextlib.asynccontextmanager
async def connected(
    settings: SshSettings, target: SshTarget, secret: Callable[[str], str | None]
) -> AsyncIterator[asyncssh.SSHClientConnection]:
    """A context in which the coordinator is signed in on a machine. Raises ProvisionerError."""
    connection = await _connect(settings, target, _password(settings, secret))
    try:
        yield connection
    except (OSError, asyncssh.Error) as error:
        raise ProvisionerError(f"the connection to {target} broke: {error}") from error
    finally:
        connection.close()


async def _connect(settings: SshSettings, target: SshTarget, password: str | None) -> asyncssh.SSHClientConnection:
    options: dict[str, Any] = {"username": target.user} if target.user else {}
    if settings.key_file:
        options["client_keys"] = [_private_key(settings.key_file)]
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            return await _connect_in_rounds(
                await HostKeyRounds.begin(settings, target), password=password, keepalive_interval=15, **options
            )
    except TimeoutError as error:
        message = f"{target} has not answered within {CONNECT_SECONDS:.0f} s"
        raise ProvisionerError(message, "check that the machine is on, and its name and port") from error
    except asyncssh.PermissionDenied as error:
        how = "the key or password" if settings.key_file or settings.password_secret else "every key of the coordinator"
        remedy = f"put the coordinator's public key into ~/.ssh/authorized_keys there (ssh-copy-id {target.user or ''}{'@' if target.user else ''}{target.host})"
        raise ProvisionerError(f"{target} refuses {how}", f"{remedy}, or name another key_file or user") from error
    except asyncssh.Error as error:  # somebody answers there: a server says of an account that is locked no more than this
        remedy = "check that an SSH server runs there, and that the account may sign in: the server's log on the machine has the reason"
        raise ProvisionerError(f"no connection to {target}: {error}", remedy) from error
    except OSError as error:
        raise ProvisionerError(
            f"no connection to {target}: {error}", "check the name, the port, and that an SSH server runs there"
        ) from error


async def _connect_in_rounds(rounds: HostKeyRounds, **options: Any) -> asyncssh.SSHClientConnection:
    """Ask for one kind of host key after the other, as long as a further one may be the one that is known. Raises ProvisionerError."""
    refused: asyncssh.HostKeyNotVerifiable | None = None
    while True:
        try:
            return await asyncssh.connect(rounds.target.host, rounds.target.port, **rounds.options(), **options)
        except asyncssh.HostKeyNotVerifiable as error:
            refused = error
            if not rounds.another():
                raise rounds.refusal(error) from error
        except (OSError, asyncssh.Error) as error:
            if refused is None or isinstance(error, asyncssh.PermissionDenied):
                raise
            raise rounds.refusal(refused) from error  # it has no key of a further kind, or takes no further connection


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


async def call(connection: asyncssh.SSHClientConnection, python: str, function: str, *arguments: Any) -> Any:
    """Call a function of `on_host.py` there, and return its answer. Everything travels through stdin: `ps` shows the Python alone.

    Raises ProvisionerError with what it said where it failed."""
    text = call_program(function, arguments)
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


def _quoted(word: str) -> str:
    """A word for a shell. A leading ~/ is left to the shell."""
    home, rest = ("~/", word[2:]) if word.startswith("~/") else ("", word)
    return home + "'" + rest.replace("'", "'\\''") + "'"


def _last_line(text: object) -> str:
    said = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text or "")
    lines = said.strip().splitlines()
    return lines[-1].strip() if lines else ""
