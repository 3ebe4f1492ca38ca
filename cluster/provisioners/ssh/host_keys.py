"""Which host key an SSH server is asked for, and what a refusal of it says.

A server has a key of each of several kinds and shows one, of the kind that the client asks for first. A key of another kind than the one that
somebody has compared proves nothing against the server: so kinds that are known for the host are asked for first, as OpenSSH does, and then those
that are left, until a key fits or none is left.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncssh

from paceline.cluster.provisioners.provisioner import ProvisionerError
from paceline.cluster.provisioners.settings import SshHost, SshSettings

DEFAULT_PORT = 22
#: Kinds of host keys in the order in which OpenSSH's client asks for them, each with the signatures that prove such a key.
KINDS: dict[str, tuple[str, ...]] = {
    "ssh-ed25519": ("ssh-ed25519",),
    "ecdsa-sha2-nistp256": ("ecdsa-sha2-nistp256",),
    "ecdsa-sha2-nistp384": ("ecdsa-sha2-nistp384",),
    "ecdsa-sha2-nistp521": ("ecdsa-sha2-nistp521",),
    "ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256"),
}
#: Certificates of hosts, asked for only where known_hosts has an authority for the host.
CERTIFICATES = tuple(f"{signature}-cert-v01@openssh.com" for signatures in KINDS.values() for signature in signatures)


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
        self.shown: asyncssh.SSHKey | None = None

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.shown = key
        return key.get_fingerprint("sha256") == self.fingerprint


@dataclass
class HostKeyRounds:
    """One attempt to sign in, in rounds: each asks for fewer kinds of host keys than the one before."""

    target: SshTarget
    known_hosts: asyncssh.SSHKnownHosts
    known: Sequence[asyncssh.SSHKey]
    authorities: bool
    refused: list[asyncssh.SSHKey] = field(default_factory=list)
    check: HostKeyCheck = field(init=False)

    def __post_init__(self) -> None:
        self.check = HostKeyCheck(self.target.host_key)

    @classmethod
    async def begin(cls, settings: SshSettings, target: SshTarget) -> HostKeyRounds:
        """Read what is known of a host, by its name and by its addresses. Raises ProvisionerError, and OSError for a name that has no address."""
        known_hosts = await asyncio.to_thread(read_known_hosts, settings)
        found = [known_hosts.match(target.host, address, target.port) for address in await _addresses(target)]
        return cls(target, known_hosts, [key for keys, *_ in found for key in keys], any(authorities for _, authorities, *_ in found))

    def options(self) -> dict[str, Any]:
        """Return the options of `asyncssh.connect` for this round."""
        kinds = [*self._known_kinds, *(kind for kind in KINDS if kind not in self._known_kinds)]
        left = [signature for kind in kinds if kind not in self._refused_kinds for signature in KINDS[kind]]
        return {
            "known_hosts": self.known_hosts,
            "server_host_key_algs": [*(CERTIFICATES if self.authorities else ()), *left],
            "client_factory": lambda: self.check,
        }

    def another(self) -> bool:
        """Return whether a further round may find a key that fits, now that what the server has shown was refused."""
        shown, self.check.shown = self.check.shown, None
        if shown is None:  # a certificate of another authority; the server may have a plain key that is known
            again, self.authorities = self.authorities, False
            return again
        self.refused.append(shown)
        if self.target.host_key is not None:
            return len(self._refused_kinds) < len(KINDS)
        # Known kinds were asked for first: a server that showed one that is not known has none that is.
        return _kind(shown) in self._known_kinds and not self._refused_kinds.issuperset(self._known_kinds)

    @property
    def _known_kinds(self) -> list[str]:
        return [kind for kind in KINDS if any(_kind(key) == kind for key in self.known)]

    @property
    def _refused_kinds(self) -> set[str]:
        return {_kind(key) for key in self.refused}

    def refusal(self, error: asyncssh.Error) -> ProvisionerError:
        """Return why no key was accepted, in words with a way out."""
        target = self.target
        if not self.refused:
            return ProvisionerError(
                f"the host key of {target} is refused: {error.reason}", "correct known_hosts on the coordinator's machine"
            )
        key = self.refused[0]
        compare = f"compare it on the machine with 'ssh-keygen -lf {key_file(key)}'"
        if target.host_key:
            shown = ", ".join(described(each) for each in self.refused)
            message = f"the host key of {target} is {shown}, and not {target.host_key}"
            return ProvisionerError(message, f"another machine may answer there: {compare}")
        if changed := next((each for each in self.refused if _kind(each) in self._known_kinds), None):
            return ProvisionerError(
                f"the host key of {target} has changed: it is {described(changed)} now, and known_hosts has another one",
                f"if the machine was set up anew, remove the old key with 'ssh-keygen -R {_listed(target)}'; else another machine answers there",
            )
        kinds = sorted({_short(each) for each in self.known})
        other = f"; known_hosts has its {' and '.join(kinds)} key alone, which it does not show" if kinds else ""
        return ProvisionerError(
            f"the host key of {target} is not known: {described(key)}{other}",
            f"{compare}; then give host_key: {key.get_fingerprint('sha256')} with the host, or add it to known_hosts of the coordinator with ssh-keyscan",
        )


async def _addresses(target: SshTarget) -> list[str]:
    """The addresses of a host; known_hosts may have its key under one of them."""
    found = await asyncio.get_running_loop().getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


def described(key: asyncssh.SSHKey) -> str:
    """Return a key's fingerprint and its kind, as `ssh-keygen -lf` names them."""
    return f"{key.get_fingerprint('sha256')} ({_short(key)})"


def key_file(key: asyncssh.SSHKey) -> str:
    """Return where OpenSSH keeps the public half of a host key of this kind."""
    return f"/etc/ssh/ssh_host_{_short(key).lower()}_key.pub"


def _short(key: asyncssh.SSHKey) -> str:
    kind = _kind(key)
    return "ED25519" if "ed25519" in kind else "ECDSA" if "ecdsa" in kind else "RSA"


def _kind(key: asyncssh.SSHKey) -> str:
    return key.get_algorithm()


def _listed(target: SshTarget) -> str:
    """A host as known_hosts and `ssh-keygen -R` write it."""
    return target.host if target.port == DEFAULT_PORT else f"[{target.host}]:{target.port}"


def read_known_hosts(settings: SshSettings) -> asyncssh.SSHKnownHosts:
    """Read the pool's file of known hosts; the default one may be missing. Raises ProvisionerError."""
    path = Path(settings.known_hosts or "~/.ssh/known_hosts").expanduser()
    if not path.exists():
        if settings.known_hosts:
            raise ProvisionerError(f"known_hosts {path} is not there", "name a file on the coordinator's machine, or leave it out")
        return asyncssh.import_known_hosts("")
    try:
        return asyncssh.read_known_hosts(str(path))
    except (OSError, ValueError) as error:
        raise ProvisionerError(f"known_hosts {path} cannot be read: {error}", "correct the file") from error
