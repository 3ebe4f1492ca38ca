"""Pools as clients see them, also one that another version has stored."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from sqlalchemy import update

from paceline.api.core.context import Services
from paceline.db.models.provisioning import PoolRow

POOLS = "/api/v1/cluster/pools"


async def put(client: httpx.AsyncClient, name: str, **fields: Any) -> dict[str, Any]:
    body = {"name": name, "provider": {"type": "manual"}, "max_nodes": 2, **fields}
    answer = await client.put(f"{POOLS}/{name}", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@pytest.mark.parametrize(
    ("stored", "word"),
    [
        ({"settings": {"type": "manual", "nonsense": 1}}, "nonsense"),
        ({"settings": {"type": "quantum"}}, "quantum"),
        ({"settings": {}}, "type"),
        ({"autoscale": {"device": "abacus"}}, "abacus"),
        ({"spent": {"nonsense": 1}}, "month"),
    ],
)
async def test_a_pool_that_this_version_cannot_read_is_shown_with_the_reason_and_left_alone(
    client: httpx.AsyncClient, services: Services, stored: dict[str, Any], word: str
) -> None:
    """The list of pools was an internal error, also for the others."""
    for name in ("bad", "good"):
        await put(client, name)
    async with services.write() as session:
        await session.execute(update(PoolRow).where(PoolRow.name == "bad").values(**stored))
    bad, good = (await client.get(POOLS)).json()["items"]
    assert (good["name"], good["unreadable"], good["provider"]["type"]) == ("good", None, "manual")
    assert word in bad["unreadable"]
    assert bad["provider"] == stored.get("settings", bad["provider"])
    assert (bad["autoscale"], bad["node_hours"], bad["max_nodes"]) == (None, None, 2)
    assert (await client.get(f"{POOLS}/bad")).json() == bad
    async with services.control.read() as session:
        row = await session.get_one(PoolRow, "bad")
        assert {name: getattr(row, name) for name in stored} == stored


async def test_an_unreadable_pool_can_be_applied_again_and_deleted(client: httpx.AsyncClient, services: Services) -> None:
    for name in ("again", "gone"):
        await put(client, name)
    async with services.write() as session:
        await session.execute(update(PoolRow).values(settings={"type": "quantum"}))
    assert (await put(client, "again"))["unreadable"] is None
    assert (await client.delete(f"{POOLS}/gone")).status_code == 204
    assert [pool["name"] for pool in (await client.get(POOLS)).json()["items"]] == ["again"]
