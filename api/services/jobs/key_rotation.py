"""Seals everything with a new key: secrets of projects, addresses and secrets of notification channels."""

from __future__ import annotations

from paceline.api.core import vault as vaults
from paceline.api.core.context import Services
from paceline.api.core.identity import Caller
from paceline.api.core.vault import NoSuchKeyError, SealDamagedError, Vault, VaultKeyError
from paceline.api.errors import ProblemError
from paceline.api.schemas.secrets import RotatedKey
from paceline.api.services.jobs.secrets import place_of
from paceline.api.services.lifecycle import events
from paceline.db.models.notifications import ChannelRow, sealed_place
from paceline.db.models.secrets import SecretRow
from paceline.db.repositories import secrets as rows

#: The fields of a channel that are sealed.
CHANNEL_FIELDS = ("url", "secret")


async def rotate(services: Services, caller: Caller, *, drop_unreadable: bool) -> RotatedKey:
    """Seal everything with a new key in one transaction, then delete the older keys. A coordinator that dies in between leaves both keys, and either
    all or nothing sealed anew."""
    vault, now = services.vault, services.now()
    async with services.write(request=True) as session:
        known = await rows.vault_key(session)
        row = await rows.vault_locked(session, known or vault.newest())
        try:
            key_id = vault.make_key() if vault.makes_keys else vault.newest()
        except (VaultKeyError, OSError) as error:
            raise ProblemError("secret_key_missing", f"no new key can be made: {error}") from error
        if key_id == row.key_id:
            raise ProblemError(
                "invalid_request", f"the first key in {vault.place} is the present one; put a new one before it, restart, and rotate again"
            )
        secrets, channels = await rows.everything_sealed(session)
        dropped: list[str] = []
        for secret in secrets:
            if not _sealed_anew(vault, key_id, secret, "sealed", place_of(secret.project, secret.name), drop=drop_unreadable):
                dropped.append(f"{secret.project}/{secret.name}")
                await session.delete(secret)
        for channel in channels:
            done = [
                _sealed_anew(vault, key_id, channel, field, sealed_place(channel, field), drop=drop_unreadable) for field in CHANNEL_FIELDS
            ]
            if not all(done):
                dropped.append(f"channel {channel.name}")
                channel.url, channel.secret, channel.enabled = None, None, False
        row.key_id = key_id
        message = f"{caller.name} sealed {len(secrets)} secrets and {len(channels)} channels with a new key"
        data = {"key_id": key_id, "dropped": dropped}
        await events.record(session, type="secret.rotated", actor=caller.actor, cause="request", message=message, data=data, time=now)
    async with services.write(request=True) as session:
        row = await rows.vault_locked(session, key_id)
        deleted = vault.keep_only(row.key_id)
    return RotatedKey(key_id=key_id, secrets=len(secrets), channels=len(channels), dropped=dropped, deleted_keys=deleted)


def _sealed_anew(vault: Vault, key_id: str, row: SecretRow | ChannelRow, field: str, place: tuple[str, ...], *, drop: bool) -> bool:
    """Seal one field of a row anew. Returns False where its key is lost and it is to be dropped; else raises a ProblemError for that."""
    sealed: str | None = getattr(row, field)
    if sealed is None:
        return True
    try:
        text = vault.open(sealed, *place) if vaults.is_sealed(sealed) else sealed
    except (NoSuchKeyError, SealDamagedError) as error:
        if drop:
            return False
        raise ProblemError(
            "secret_key_missing", f"{' '.join(place)}: {error}; or give up what cannot be opened: paceline secret rotate --drop-unreadable"
        ) from error
    setattr(row, field, vault.seal_with(key_id, text, *place))
    return True
