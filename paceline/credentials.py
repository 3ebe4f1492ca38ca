"""Secrets of Paceline, and those that whoever starts a coordinator has made for it beforehand.

Secrets are random, shown once and kept by the coordinator as SHA-256; a fast hash suffices because there is nothing to guess from.
"""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path

import msgspec

from paceline.monitoring.files import write_durably

KEY_PREFIX = "pk_"
NODE_PREFIX = "pn_"
JOIN_PREFIX = "pj_"


def new_secret(prefix: str = "") -> str:
    """Return a random secret of 43 characters behind `prefix`."""
    return prefix + secrets.token_urlsafe(32)


def hash_secret(secret: str) -> str:
    """Return the form in which a coordinator stores `secret`: its SHA-256 in hexadecimal digits."""
    return hashlib.sha256(secret.encode()).hexdigest()


class FirstCredentials(msgspec.Struct, frozen=True):
    """Credentials that a coordinator is to accept from its start, so that what needs them starts beside it instead of behind it.

    They lie in a file of the coordinator's data folder, which only its owner can write: whoever can, may administer the coordinator anyhow."""

    key_name: str
    key: str  # of an admin; an older key of this name is revoked
    join_tokens: tuple[str, ...] = ()

    @classmethod
    def make(cls, key_name: str, nodes: int) -> FirstCredentials:
        """Make a key, and a join token for each of so many nodes."""
        return cls(key_name, new_secret(KEY_PREFIX), tuple(new_secret(JOIN_PREFIX) for _ in range(nodes)))

    def hand_over(self, data: Path) -> None:
        """Write the file that a coordinator with this data folder reads and removes when it starts."""
        write_durably(file_in(data), msgspec.json.encode(self), mode=0o600)

    @classmethod
    def take(cls, data: Path) -> FirstCredentials | None:
        """Read the file and remove it; None: there is none. Raises msgspec.DecodeError, the file being gone, where it is damaged."""
        file = file_in(data)
        try:
            content = file.read_bytes()
        except FileNotFoundError:
            return None
        file.unlink()
        return msgspec.json.decode(content, type=cls)


def file_in(data: Path) -> Path:
    """Return the file in the data folder `data` of a coordinator that has its first credentials."""
    return data / "first_credentials.json"
