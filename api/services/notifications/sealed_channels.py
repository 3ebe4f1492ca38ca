"""The sealed parts of channels: the address of a webhook, which often has a key in it, and the secret that signs requests."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.core.vault import NoSuchKeyError, SealDamagedError, Vault, VaultKeyError, is_sealed, seal
from paceline.db.models.notifications import ChannelRow, sealed_place
from paceline.db.repositories import notifications as rows


@dataclass(frozen=True)
class OpenedChannel:
    """The parts of a channel that are sealed. `failure`: why they cannot be opened."""

    url: str | None
    secret: str | None
    failure: str = ""


def opened(row: ChannelRow, vault: Vault) -> OpenedChannel:
    """Open what is sealed of a channel. What a version without seals has stored is as it is."""
    try:
        values = {
            field: value if value is None or not is_sealed(value) else vault.open(value, *sealed_place(row, field))
            for field, value in (("url", row.url), ("secret", row.secret))
        }
    except (NoSuchKeyError, SealDamagedError, VaultKeyError, OSError) as error:
        return OpenedChannel(None, None, str(error))
    return OpenedChannel(values["url"], values["secret"])


async def seal_channel(session: AsyncSession, vault: Vault, row: ChannelRow) -> None:
    """Seal what is readable of a channel. Raises a ProblemError `secret_key_missing`."""
    if row.url is not None and not is_sealed(row.url):
        row.url = await seal(session, vault, row.url, *sealed_place(row, "url"))
    if row.secret is not None and not is_sealed(row.secret):
        row.secret = await seal(session, vault, row.secret, *sealed_place(row, "secret"))


async def seal_readable(services: Services) -> None:
    """Seal the channels that a version without seals has stored."""
    async with services.control.read() as session:
        found = [row for row in await rows.channels(session) if row.url is not None and not is_sealed(row.url)]
    if found:
        async with services.write() as session:
            for row in await rows.channels(session):
                await seal_channel(session, services.vault, row)
