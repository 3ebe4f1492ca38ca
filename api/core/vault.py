"""Seals what the database must not hold readable: secrets of projects, addresses and secrets of notification channels.

AES-256-GCM with a random nonce of 96 bits; the place of a value (its table, its project and name) is authenticated along, so that a sealed text opens
in its own place only. The keys lie beside the database, never in it: in `secrets.key` of the data folder, in the file PACELINE_SECRETS_KEY_FILE, or in
PACELINE_SECRETS_KEY. Coordinators that share a database share them. The newest key is the first; older ones open what was sealed with them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import os
import secrets
import stat
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.errors import ProblemError
from paceline.api.settings import Settings
from paceline.db.models.secrets import VaultRow
from paceline.db.repositories import secrets as rows
from paceline.monitoring.files import make_folders, write_durably

KEY_FILE, KEY_VARIABLE = "secrets.key", "PACELINE_SECRETS_KEY"
KEY_BYTES, NONCE_BYTES = 32, 12
MARK = "sealed:1:"
MOST_FILE_BYTES = 64 << 10

log = logging.getLogger(__name__)


class VaultKeyError(Exception):
    """A key cannot be read, or is none. The message names its place and the way out, never the key."""


class NoSuchKeyError(Exception):
    """A text was sealed with a key that this coordinator does not have."""

    def __init__(self, key_id: str, place: str) -> None:
        super().__init__(
            f"sealed with the key {key_id}, which is not in {place}; bring back the {KEY_FILE} of the coordinator that sealed it, "
            f"or set {KEY_VARIABLE}"
        )


class SealDamagedError(Exception):
    """A sealed text was changed, or stands in another place than where it was sealed."""


def key_id_of(key: bytes) -> str:
    """The id of a key, which tells nothing about it."""
    return hashlib.sha256(b"paceline vault key\0" + key).hexdigest()[:12]


class Vault:
    """The keys of this coordinator, and what is done with them. Reads its file again when it has changed: another coordinator may rotate."""

    def __init__(self, settings: Settings) -> None:
        self._given = settings.secrets_key.get_secret_value()
        self._path = settings.secrets_key_file or settings.data / KEY_FILE
        self._seen: tuple[int, int, int] | None = None
        self._keys: dict[str, bytes] = {}

    @property
    def place(self) -> str:
        return KEY_VARIABLE if self._given else str(self._path)

    @property
    def makes_keys(self) -> bool:
        """Whether new keys are made here; else whoever runs the coordinator puts them into its environment."""
        return not self._given

    def read_keys(self) -> dict[str, bytes]:
        """The keys by their ids, the newest first; none where none was made yet. Raises VaultKeyError."""
        if self._given:
            self._keys = self._keys or parse_keys(self._given.split(","), self.place)
            return self._keys
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return {}
        seen = (found.st_mtime_ns, found.st_ino, found.st_size)
        if seen != self._seen:
            if stat.S_IMODE(found.st_mode) & 0o077:
                log.warning("%s can be read by other users of this machine; run chmod 600 on it", self._path)
            try:
                self._keys = parse_keys(self._path.read_text("ascii")[:MOST_FILE_BYTES].splitlines(), self.place)
            except (OSError, UnicodeDecodeError) as error:
                raise VaultKeyError(f"{self.place} cannot be read: {error}") from error
            self._seen = seen
        return self._keys

    def newest(self) -> str:
        """The id of the newest key, which is made where there is none."""
        return next(iter(self.read_keys()), None) or self.make_key()

    def make_key(self) -> str:
        """Make a key, and put it before the others."""
        key = secrets.token_bytes(KEY_BYTES)
        self._write([key, *self.read_keys().values()])
        return key_id_of(key)

    def keep_only(self, key_id: str) -> int:
        """Delete all keys but this one. Returns how many were deleted."""
        keys = self.read_keys()
        if not self.makes_keys or len(keys) < 2:
            return 0
        self._write([keys[key_id]])
        return len(keys) - 1

    def _write(self, keys: Sequence[bytes]) -> None:
        make_folders(self._path.parent)
        text = "# Opens the secrets in the database of this coordinator. Keep a copy, apart from those of the database.\n"
        write_durably(self._path, (text + "".join(f"{base64.b64encode(key).decode()}\n" for key in keys)).encode(), mode=0o600)

    def seal_with(self, key_id: str, text: str, *place: str) -> str:
        nonce = os.urandom(NONCE_BYTES)
        sealed = AESGCM(self._key(key_id)).encrypt(nonce, text.encode(), _context(place))
        return f"{MARK}{key_id}:{base64.b64encode(nonce + sealed).decode()}"

    def open(self, sealed: str, *place: str) -> str:
        """The text that was sealed in this place. Raises NoSuchKeyError, SealDamagedError, or VaultKeyError."""
        key_id, _, content = sealed.removeprefix(MARK).partition(":")
        key = self._key(key_id)
        try:
            data = base64.b64decode(content, validate=True)
            return AESGCM(key).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], _context(place)).decode()
        except (InvalidTag, ValueError) as error:
            raise SealDamagedError(f"what is sealed for {' '.join(place)} was changed in the database; set it again") from error

    def _key(self, key_id: str) -> bytes:
        keys = self.read_keys()
        if key_id not in keys:
            raise NoSuchKeyError(key_id, self.place)
        return keys[key_id]


def is_sealed(text: str) -> bool:
    return text.startswith(MARK)


def key_of(sealed: str) -> str:
    """The id of the key that a text was sealed with."""
    return sealed.removeprefix(MARK).partition(":")[0]


def _context(place: Sequence[str]) -> bytes:
    return "\0".join(place).encode()


def parse_keys(lines: Sequence[str], place: str) -> dict[str, bytes]:
    """Keys in base64, one a line, the newest first. Raises VaultKeyError, which says which line is wrong and not what it has."""
    found: dict[str, bytes] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            key = base64.b64decode(line.strip(), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != KEY_BYTES:
            raise VaultKeyError(
                f"{place}: key {number} is not {KEY_BYTES} bytes in base64; make one with `openssl rand -base64 {KEY_BYTES}`"
            )
        found[key_id_of(key)] = key
    return found


# --- in a transaction


async def seal(session: AsyncSession, vault: Vault, text: str, *place: str) -> str:
    """Seal a text for its place. Holds the vault's lock until the transaction ends. Raises a ProblemError `secret_key_missing`."""
    row = await locked(session, vault)
    return vault.seal_with(row.key_id, text, *place)


async def locked(session: AsyncSession, vault: Vault) -> VaultRow:
    """The vault's row, locked, whose key is here. Raises a ProblemError `secret_key_missing`."""
    try:
        known = await rows.vault_key(session)
        row = await rows.vault_locked(session, known or vault.newest())
        if row.key_id not in vault.read_keys():
            raise NoSuchKeyError(row.key_id, vault.place)
    except (NoSuchKeyError, VaultKeyError, OSError) as error:
        raise ProblemError("secret_key_missing", f"nothing can be sealed: {error}") from error
    return row
