"""What the autoscaler decides becomes launches and drains, each with its reason in the history."""

from __future__ import annotations

import httpx

from paceline.api.core.context import Services
from paceline.api.services.nodes import scaling
from paceline.cluster.autoscaling.decisions import DrainNode, LaunchNodes
from tests import factories

EVENTS, LAUNCHES = "/api/v1/events", "/api/v1/cluster/launches"
POOL = {"name": "lab", "provider": {"type": "ssh", "hosts": ["ada@gpu1", "ada@gpu2"]}}


async def test_decisions_are_carried_out_with_their_reasons_and_a_refusal_holds_up_nothing(
    client: httpx.AsyncClient, services: Services
) -> None:
    await client.put("/api/v1/cluster/pools/lab", json=POOL)
    async with services.write() as session:
        idle, _ = await factories.create_node(session, name="lab-old", provider="ssh", pool="lab")
        other, _ = await factories.create_node(session, name="by-hand")
    wishes = [LaunchNodes("none", 1, "a job waits"), LaunchNodes("lab", 3, "three wait"), LaunchNodes("lab", 2, "job j needs 4 slots")]
    drains = [DrainNode(idle.id, "lab", "idle for 300 s"), DrainNode(other.id, "lab", "it is none of the pool's")]
    await scaling.carry_out(services, wishes, drains, services.now())
    assert [each["name"] for each in (await client.get(LAUNCHES)).json()["items"]] == ["lab-gpu1", "lab-gpu2"]
    events = (await client.get(EVENTS, params={"limit": 200})).json()["items"]
    told = [(each["type"], each["cause"]) for each in events if each["actor"]["name"] == "autoscaler"]
    assert told == [
        ("autoscaler.refused", "a job waits"),
        ("autoscaler.refused", "three wait"),
        ("launch.requested", "job j needs 4 slots"),
        ("launch.requested", "job j needs 4 slots"),
        ("node.state", "idle for 300 s"),
    ]
    assert (await client.get(f"/api/v1/cluster/nodes/{other.id}")).json()["state"] == "ready"
