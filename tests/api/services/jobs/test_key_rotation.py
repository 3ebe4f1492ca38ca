"""A new key: everything is sealed anew at once, older keys go, and what cannot be opened is told."""

from __future__ import annotations

import base64
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
from pydantic import SecretStr

from paceline.api.core.context import Services
from paceline.api.core.vault import Vault, is_sealed, key_of
from paceline.api.services.jobs.secrets import place_of
from paceline.api.services.notifications import sealed_channels
from paceline.db.models.notifications import ChannelRow
from paceline.db.repositories import notifications as channel_rows
from paceline.db.repositories import secrets as rows

SECRETS = "/api/v1/secrets"
HOOK = "https://hooks.example.org/services/T0/B0/very-secret"


async def rotate(client: httpx.AsyncClient, **body: Any) -> httpx.Response:
    return await client.post(f"{SECRETS}/rotate", json=body)


async def opened(services: Services) -> dict[str, str]:
    async with services.control.read() as session:
        found, channels = await rows.everything_sealed(session)
    values = {row.name: services.vault.open(row.sealed, *place_of(row.project, row.name)) for row in found}
    return values | {row.name: str(sealed_channels.opened(row, services.vault).url) for row in channels}


async def set_up(client: httpx.AsyncClient, services: Services) -> None:
    assert (await client.put(f"{SECRETS}/vision/TOKEN", json={"value": "value-of-token"})).status_code == 200
    async with services.write() as session:
        row = ChannelRow(
            name="hook",
            kind="slack",
            url=HOOK,
            secret=None,
            base_url="",
            created_by="a",
            created_at=services.now(),
            tokens=1.0,
            tokens_at=services.now(),
        )
        session.add(row)
    await sealed_channels.seal_readable(services)


async def test_everything_is_sealed_with_a_new_key_and_the_old_one_goes(client: httpx.AsyncClient, services: Services) -> None:
    await set_up(client, services)
    before, keys = await opened(services), set(services.vault.read_keys())
    answer = (await rotate(client)).json()
    assert (answer["secrets"], answer["channels"], answer["dropped"], answer["deleted_keys"]) == (1, 1, [], 1)
    assert list(services.vault.read_keys()) == [answer["key_id"]]
    assert not keys & set(services.vault.read_keys())
    assert await opened(services) == before == {"TOKEN": "value-of-token", "hook": HOOK}
    async with services.control.read() as session:
        assert await rows.vault_key(session) == answer["key_id"]


async def test_a_channel_of_a_version_without_seals_is_sealed_at_the_start(client: httpx.AsyncClient, services: Services) -> None:
    await set_up(client, services)
    async with services.control.read() as session:
        row = await channel_rows.channel(session, "hook")
    assert row is not None
    assert is_sealed(row.url or "")
    assert sealed_channels.opened(row, services.vault).url == HOOK
    listed = (await client.get("/api/v1/notifications/channels")).json()
    assert listed[0]["target"] == "hooks.example.org"


async def test_lost_keys_are_told_and_what_they_sealed_can_be_given_up(client: httpx.AsyncClient, services: Services) -> None:
    await set_up(client, services)
    (services.settings.data / "secrets.key").unlink()
    services.vault.make_key()
    put = await client.put(f"{SECRETS}/vision/OTHER", json={"value": "another-value"})
    assert (put.status_code, put.json()["code"]) == (503, "secret_key_missing")
    assert (await client.get("/api/v1/notifications/channels")).json()[0]["target"] == "sealed with a lost key"
    refused = await rotate(client)
    assert (refused.status_code, refused.json()["code"]) == (503, "secret_key_missing")
    assert "--drop-unreadable" in refused.json()["detail"]
    done = (await rotate(client, drop_unreadable=True)).json()
    assert done["dropped"] == ["vision/TOKEN", "channel hook"]
    assert (await client.put(f"{SECRETS}/vision/OTHER", json={"value": "another-value"})).status_code == 200
    assert (await client.get("/api/v1/notifications/channels")).json()[0]["enabled"] is False


async def test_what_is_given_up_is_told_by_name(client: httpx.AsyncClient, services: Services) -> None:
    for name in ("SECOND", "FIRST"):
        assert (await client.put(f"{SECRETS}/vision/{name}", json={"value": "value-of-token"})).status_code == 200
    (services.settings.data / "secrets.key").unlink()
    services.vault.make_key()
    assert (await rotate(client, drop_unreadable=True)).json()["dropped"] == ["vision/FIRST", "vision/SECOND"]


async def test_keys_of_the_environment_are_rotated_by_putting_a_new_one_first(services: Services, tmp_path: Path) -> None:
    old, new = (base64.b64encode(os.urandom(32)).decode() for _ in range(2))
    settings = services.settings.model_copy(update={"secrets_key": SecretStr(old)})
    first, second = Vault(settings), Vault(settings.model_copy(update={"secrets_key": SecretStr(f"{new},{old}")}))
    sealed = first.seal_with(first.newest(), "text", "secret", "p", "N")
    assert key_of(second.seal_with(second.newest(), second.open(sealed, "secret", "p", "N"), "secret", "p", "N")) == second.newest()
    assert replace(services).vault.makes_keys
