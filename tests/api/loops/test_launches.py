"""From a request for a node to its end at its provider: with a provider in this process, on both databases, with the time as an argument."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
from pydantic import BaseModel

from paceline.api.core.context import Services
from paceline.api.core.identity import SYSTEM
from paceline.api.loops.due_looks import DueLooks
from paceline.api.loops.launches import CLAIM_SECONDS, LaunchKeeper
from paceline.api.services.lifecycle import node_lifecycle
from paceline.cluster.protocol import JOIN_PATH
from paceline.cluster.provisioners import progress
from paceline.cluster.provisioners.provisioner import LaunchPhase, ProvisionerError, SeenLaunch
from paceline.cluster.provisioners.settings import ProviderSettings
from paceline.cluster.states import LaunchState, NodeState
from paceline.db.models.nodes import NodeRow
from paceline.db.models.provisioning import LaunchRow
from paceline.db.repositories import nodes as node_rows
from paceline.training.schema.spelling import SpellingRule
from tests.cluster.provisioners import fake_slurm
from tests.fake_provisioner import FakeProvisioner

NODES, POOLS, LAUNCHES = "/api/v1/cluster/nodes", "/api/v1/cluster/pools", "/api/v1/cluster/launches"
POOL = {"name": "lab", "provider": {"type": "ssh", "hosts": ["ada@gpu1", "ada@gpu2"]}, "labels": {"zone": "a"}, "slots": 2}
NAME, HANDLE = "lab-gpu1", "fake/lab-gpu1"


@dataclass
class Machinery:
    """A coordinator with its loop of launches, and the provider that it asks."""

    services: Services
    client: httpx.AsyncClient
    provider: FakeProvisioner
    keeper: LaunchKeeper
    now: datetime

    async def step(self, seconds: float = 0.0) -> None:
        self.now += timedelta(seconds=seconds)
        await self.keeper.step_once(self.now)

    async def ask(self, count: int = 1) -> list[dict[str, Any]]:
        await self.client.put(f"{POOLS}/lab", json=POOL)
        answer = await self.client.post(NODES, json={"pool": "lab", "count": count})
        assert answer.status_code == 201, answer.text
        found: list[dict[str, Any]] = answer.json()["launches"]
        self.now = max(self.now, self.services.now())
        return found

    async def row(self, launch_id: str) -> LaunchRow:
        async with self.services.control.read() as session:
            found = await session.get(LaunchRow, launch_id)
        assert found is not None
        return found

    async def join(self, name: str = NAME, token: str | None = None) -> httpx.Response:
        body = {"token": token or self.provider.requests[name].join_token, "name": name}
        return await self.client.post(JOIN_PATH, json=body)

    async def joined(self) -> tuple[str, str]:
        """(launch id, node id) of a node that has joined."""
        (launch,) = await self.ask()
        await self.step(1)
        return launch["id"], (await self.join()).json()["node_id"]

    async def events(self, type: str) -> list[dict[str, Any]]:
        page = (await self.client.get("/api/v1/events", params={"limit": 200})).json()
        return [each for each in page["events" if "events" in page else "items"] if each["type"] == type]

    async def move_node(self, node_id: str, to: NodeState) -> None:
        async with self.services.write() as session:
            node = await node_rows.get_locked(session, node_id)
            assert isinstance(node, NodeRow)
            await node_lifecycle.move(session, node, to, SYSTEM, "as a test wants it", self.now)


@pytest.fixture
async def machinery(services: Services, client: httpx.AsyncClient) -> Machinery:
    provider = FakeProvisioner()
    return Machinery(services, client, provider, LaunchKeeper(services, DueLooks(services), provider.factory), services.now())


async def test_a_node_of_a_pool_is_launched_joins_by_its_name_and_knows_where_it_came_from(machinery: Machinery) -> None:
    (launch,) = await machinery.ask()
    assert (launch["name"], launch["state"], launch["command"]) == (NAME, "requested", None)
    await machinery.step(1)
    request = machinery.provider.requests[NAME]
    assert (request.pool, request.slots, dict(request.labels)) == ("lab", 2, {"pool": "lab", "zone": "a"})
    (coming,) = (await machinery.client.get(LAUNCHES)).json()["items"]
    assert (coming["state"], coming["reason"], coming["handle"]) == ("pending", "its provider has taken it", HANDLE)
    await machinery.step(3)
    assert (await machinery.row(launch["id"])).reason == "in the queue"
    machinery.provider.seen[HANDLE] = SeenLaunch(LaunchPhase.RUNNING)
    await machinery.step(3)
    assert (await machinery.row(launch["id"])).state is LaunchState.RUNNING
    node_id = (await machinery.join()).json()["node_id"]
    node = (await machinery.client.get(f"{NODES}/{node_id}")).json()
    assert (node["name"], node["provider"], node["pool"], node["handle"]) == (NAME, "ssh", "lab", HANDLE)
    assert (await machinery.client.get(LAUNCHES)).json()["items"] == []
    (pool,) = (await machinery.client.get(POOLS)).json()["items"]
    assert (pool["nodes"], pool["coming"]) == (1, 0)
    events = await machinery.events("launch.state")
    moves = [(each["data"]["from"], each["data"]["to"]) for each in events]
    assert moves == [("requested", "pending"), ("pending", "running"), ("running", "joined")]


async def test_a_launch_whose_node_has_joined_is_not_cancelled(machinery: Machinery) -> None:
    launch_id, _ = await machinery.joined()
    refused = await machinery.client.delete(f"{LAUNCHES}/{launch_id}")
    assert (refused.status_code, refused.json()["code"]) == (409, "launch_joined")
    assert (await machinery.row(launch_id)).state is LaunchState.JOINED


async def test_a_node_that_is_removed_is_drained_and_then_ended_at_its_provider(machinery: Machinery) -> None:
    launch_id, node_id = await machinery.joined()
    await machinery.move_node(node_id, NodeState.READY)
    await machinery.client.delete(f"{NODES}/{node_id}")
    await machinery.step(20)
    assert machinery.provider.count("terminate") == 0, "its node still drains"
    await machinery.move_node(node_id, NodeState.GONE)
    await machinery.step(20)
    await machinery.step(1)
    assert machinery.provider.calls[-1] == ("terminate", HANDLE)
    assert (await machinery.row(launch_id)).state is LaunchState.ENDED
    refused = await machinery.join()
    assert (refused.status_code, refused.json()["code"]) == (401, "invalid_join_token"), "its tokens are revoked"


async def test_a_removal_that_is_taken_back_ends_nothing(machinery: Machinery) -> None:
    launch_id, node_id = await machinery.joined()
    await machinery.move_node(node_id, NodeState.READY)
    await machinery.client.delete(f"{NODES}/{node_id}")
    await machinery.client.put(f"{NODES}/{node_id}/uncordon")
    await machinery.step(20)
    await machinery.step(20)
    assert machinery.provider.count("terminate") == 0
    assert (await machinery.row(launch_id)).wanted is True


async def test_an_agent_that_never_joins_is_given_up_with_the_reason_and_ended(machinery: Machinery) -> None:
    (launch,) = await machinery.ask()
    await machinery.step(1)
    machinery.provider.seen[HANDLE] = SeenLaunch(LaunchPhase.RUNNING)
    await machinery.step(3)
    await machinery.step(progress.JOIN_SECONDS)
    await machinery.step(1)
    row = await machinery.row(launch["id"])
    assert row.state is LaunchState.FAILED
    assert row.failure.startswith("its agent was started 30")
    assert "reaches the coordinator" in row.remedy
    assert machinery.provider.calls[-1] == ("terminate", HANDLE)
    (shown,) = (await machinery.client.get(LAUNCHES)).json()["items"]
    assert shown["failure"] == row.failure
    assert (await machinery.client.delete(f"{LAUNCHES}/{row.id}")).status_code == 202
    assert (await machinery.client.get(LAUNCHES)).json()["items"] == []


async def test_a_refusal_is_shown_with_its_way_out_tried_again_and_given_up(machinery: Machinery) -> None:
    (launch,) = await machinery.ask()
    machinery.provider.refusal = ProvisionerError("gpu1 does not answer", "switch it on")
    for _ in range(progress.MOST_TRIES - 1):
        await machinery.step(progress.LONGEST_WAIT_SECONDS)
        row = await machinery.row(launch["id"])
        assert (row.state, row.reason, row.remedy) == (LaunchState.REQUESTED, "gpu1 does not answer", "switch it on")
    await machinery.step(progress.LONGEST_WAIT_SECONDS)
    row = await machinery.row(launch["id"])
    assert (row.state, row.failure, row.remedy) == (LaunchState.FAILED, "gpu1 does not answer (5 tries)", "switch it on")


async def test_a_host_that_is_down_does_not_keep_the_hosts_behind_it_from_being_tried(machinery: Machinery) -> None:
    await machinery.ask()
    machinery.provider.refusal = ProvisionerError("gpu1 does not answer", "switch it on")
    for _ in range(progress.MOST_TRIES):
        await machinery.step(progress.LONGEST_WAIT_SECONDS)
    machinery.provider.refusal = None
    (launch,) = await machinery.ask()
    assert launch["name"] == "lab-gpu2"


async def test_a_coordinator_that_is_killed_while_it_asks_launches_nothing_twice_and_orphans_nothing(machinery: Machinery) -> None:
    (launch,) = await machinery.ask()
    machinery.provider.gate = asyncio.Event()
    step = asyncio.create_task(machinery.step(1))
    while not machinery.provider.requests:  # noqa: ASYNC110 - the provider has it, and its answer never comes
        await asyncio.sleep(0)
    for call in machinery.keeper._calls:
        call.cancel()
    await step
    machinery.provider.gate = None
    first = machinery.provider.requests[NAME]
    machinery.keeper = LaunchKeeper(machinery.services, DueLooks(machinery.services), machinery.provider.factory)
    await machinery.client.delete(f"{LAUNCHES}/{launch['id']}")
    await machinery.step(CLAIM_SECONDS + 1)
    assert list(machinery.provider.requests) == [first.name], "asked again under the same name, which is the same node"
    await machinery.step(1)
    await machinery.step(1)
    assert machinery.provider.calls[-1] == ("terminate", HANDLE), "cancelled meanwhile, and still ended at the provider"
    assert (await machinery.row(launch["id"])).state is LaunchState.ENDED


async def test_two_replicas_ask_once(machinery: Machinery) -> None:
    await machinery.ask(2)
    other = LaunchKeeper(machinery.services, DueLooks(machinery.services), machinery.provider.factory)
    machinery.keeper._last_step = other._last_step = machinery.now
    machinery.now += timedelta(seconds=1)
    await asyncio.gather(machinery.keeper.step_once(machinery.now), other.step_once(machinery.now))
    assert machinery.provider.count("launch") == 2


async def test_a_node_that_joins_before_the_provider_has_answered_gets_its_handle_later(machinery: Machinery) -> None:
    (launch,) = await machinery.ask()
    machinery.provider.gate = asyncio.Event()
    step = asyncio.create_task(machinery.step(1))
    while not machinery.provider.requests:  # noqa: ASYNC110 - see above
        await asyncio.sleep(0)
    node_id = (await machinery.join()).json()["node_id"]
    machinery.provider.gate.set()
    await step
    assert (await machinery.row(launch["id"])).state is LaunchState.JOINED
    assert (await machinery.client.get(f"{NODES}/{node_id}")).json()["handle"] == HANDLE


async def test_a_node_that_its_provider_starts_again_joins_again_under_its_name(machinery: Machinery) -> None:
    launch_id, node_id = await machinery.joined()
    await machinery.move_node(node_id, NodeState.GONE)  # it left by itself
    await machinery.step(20)
    assert (await machinery.row(launch_id)).state is LaunchState.PENDING
    again = await machinery.join()
    assert again.status_code == 201, again.text
    row = await machinery.row(launch_id)
    assert (row.state, row.node_id) == (LaunchState.JOINED, again.json()["node_id"])


async def test_a_node_that_left_in_order_has_not_failed_where_its_provider_takes_a_moment_to_end_it(machinery: Machinery) -> None:
    """It was taken for one that starts again, and then for one that never joined: its pool was left alone for five minutes."""
    launch_id, node_id = await machinery.joined()
    await machinery.move_node(node_id, NodeState.GONE)
    machinery.provider.seen[HANDLE] = SeenLaunch(LaunchPhase.RUNNING, "its job is ending")
    await machinery.step(20)
    machinery.provider.seen[HANDLE] = SeenLaunch(LaunchPhase.ENDED, "its agent left in order")
    await machinery.step(3)
    await machinery.step(1)
    row = await machinery.row(launch_id)
    assert (row.state, row.failure, row.wanted) == (LaunchState.ENDED, "", True)


def secret_examples() -> list[str]:
    """The example of each field of a provider's settings that names a variable with a secret."""
    kinds: tuple[type[BaseModel], ...] = get_args(get_args(ProviderSettings)[0])
    fields = [field for kind in kinds for name, field in kind.model_fields.items() if name.endswith("_secret")]
    parts = [part for field in fields for option in get_args(field.annotation) for part in get_args(option)]
    return [part.example for part in parts if isinstance(part, SpellingRule)]


@pytest.mark.parametrize("name", secret_examples())
def test_a_provider_gets_the_secret_that_its_settings_name(name: str, services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    """`token_secret: PACELINE_KUBERNETES_TOKEN`, as the page has it, was "no such environment variable", though it was set."""
    monkeypatch.setenv(name, "of-the-cluster")
    assert LaunchKeeper(services, DueLooks(services))._context().secret(name) == "of-the-cluster"


@pytest.mark.parametrize("name", ["DATABASE_URL", "PACELINE_SECRETS_KEY", "PACELINE_SMTP_PASSWORD"])
def test_no_pool_can_have_a_host_told_what_is_the_coordinators_own(name: str, services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "the-coordinators-own")
    assert LaunchKeeper(services, DueLooks(services))._context().secret(name) is None


async def test_a_slurm_node_near_its_time_limit_is_left_to_its_own_agent(
    machinery: Machinery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was removed, and its job cancelled with it, before its agent could say that it comes back."""
    fake_slurm.install(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    await machinery.client.put(f"{POOLS}/batch", json={"name": "batch", "provider": {"type": "slurm", "requeue": True}})
    answer = await machinery.client.post(NODES, json={"pool": "batch"})
    assert answer.status_code == 201, answer.text
    (launch,) = answer.json()["launches"]
    machinery.keeper = LaunchKeeper(machinery.services, DueLooks(machinery.services))
    machinery.now = machinery.services.now()
    await machinery.step(1)
    token = fake_slurm.jobs(tmp_path)[0]["environment"]["PACELINE_JOIN_TOKEN"]
    node_id = (await machinery.join(launch["name"], token)).json()["node_id"]
    await machinery.move_node(node_id, NodeState.READY)
    ends_at = (machinery.now + timedelta(seconds=150)).astimezone(UTC)
    fake_slurm.change(tmp_path, state="RUNNING", end=f"{ends_at:%Y-%m-%dT%H:%M:%S}", reason="None")
    await machinery.step(20)
    assert (await machinery.client.get(f"{NODES}/{node_id}")).json()["state"] == "ready"
    row = await machinery.row(launch["id"])
    assert (row.state, row.wanted) == (LaunchState.JOINED, True)


async def test_a_token_joins_its_own_node_alone(machinery: Machinery) -> None:
    await machinery.ask()
    await machinery.step(1)
    refused = await machinery.join(name="other", token=machinery.provider.requests[NAME].join_token)
    assert (refused.status_code, refused.json()["code"]) == (401, "invalid_join_token")
    assert "'lab-gpu1'" in refused.json()["detail"]
    assert (await machinery.join()).status_code == 201


async def test_a_launch_is_cancelled_before_its_provider_is_asked(machinery: Machinery) -> None:
    (launch,) = await machinery.ask()
    await machinery.client.delete(f"{LAUNCHES}/{launch['id']}")
    await machinery.step(1)
    assert (await machinery.row(launch["id"])).state is LaunchState.ENDED
    assert machinery.provider.calls == []


UNREACHED = ProvisionerError("gpu1 does not answer", "switch it on", nothing_began=True)


async def test_a_launch_that_never_reached_its_host_ends_at_once_when_it_is_cancelled(machinery: Machinery) -> None:
    """It was asked for five times, and then had failed."""
    (launch,) = await machinery.ask()
    machinery.provider.refusal = UNREACHED
    await machinery.step(1)
    await machinery.client.delete(f"{LAUNCHES}/{launch['id']}")
    await machinery.step()
    row = await machinery.row(launch["id"])
    assert (row.state, row.reason) == (LaunchState.ENDED, "it was cancelled before anything of it was started")
    assert machinery.provider.count("launch") == 1


async def test_a_launch_that_is_cancelled_while_its_host_is_tried_ends_with_the_refusal(machinery: Machinery) -> None:
    (launch,) = await machinery.ask()
    machinery.provider.gate, machinery.provider.late_refusal = asyncio.Event(), UNREACHED
    step = asyncio.create_task(machinery.step(1))
    while not machinery.provider.calls:  # noqa: ASYNC110 - its answer is held back
        await asyncio.sleep(0)
    await machinery.client.delete(f"{LAUNCHES}/{launch['id']}")
    async with machinery.services.write() as session:
        again = await machinery.keeper._claim(session, machinery.now + timedelta(seconds=1))
    assert again == [], "it is being asked for: what was started is known in a moment"
    machinery.provider.gate.set()
    await step
    assert machinery.provider.count("launch") == 1
    assert (await machinery.row(launch["id"])).state is LaunchState.ENDED


async def test_a_cancelled_launch_is_asked_for_as_long_as_something_may_have_been_started(machinery: Machinery) -> None:
    (launch,) = await machinery.ask()
    machinery.provider.refusal = ProvisionerError("the connection broke")
    await machinery.step(1)
    machinery.provider.refusal = UNREACHED
    await machinery.client.delete(f"{LAUNCHES}/{launch['id']}")
    await machinery.step(1)
    assert (await machinery.row(launch["id"])).state is LaunchState.REQUESTED, "an agent may run there"
    machinery.provider.refusal = None
    for _ in range(3):
        await machinery.step(progress.LONGEST_WAIT_SECONDS)
    assert machinery.provider.calls[-1] == ("terminate", HANDLE)
    assert (await machinery.row(launch["id"])).state is LaunchState.ENDED


async def test_a_pool_has_room_for_as_many_nodes_as_it_has_hosts(machinery: Machinery) -> None:
    await machinery.ask(2)
    refused = await machinery.client.post(NODES, json={"pool": "lab"})
    assert (refused.status_code, refused.json()["code"]) == (409, "pool_full")
    assert "has 2 of at most 2 nodes" in refused.json()["detail"]


async def test_a_new_pool_does_not_take_the_place_of_one_that_has_its_name(machinery: Machinery) -> None:
    new, other = {"If-None-Match": "*"}, {"name": "lab", "provider": {"type": "manual"}}
    assert (await machinery.client.put(f"{POOLS}/lab", json=POOL, headers=new)).status_code == 200
    refused = await machinery.client.put(f"{POOLS}/lab", json=other, headers=new)
    assert (refused.status_code, refused.json()["code"]) == (409, "already_exists")
    assert "there is a pool 'lab' already" in refused.json()["detail"]
    assert (await machinery.client.get(f"{POOLS}/lab")).json()["provider"]["type"] == "ssh"


async def test_deleting_a_pool_with_nodes_is_refused_or_drains_them(machinery: Machinery) -> None:
    launch_id, node_id = await machinery.joined()
    await machinery.move_node(node_id, NodeState.READY)
    refused = await machinery.client.delete(f"{POOLS}/lab")
    assert (refused.status_code, refused.json()["code"]) == (409, "pool_in_use")
    assert NAME in refused.json()["detail"]
    assert (await machinery.client.delete(f"{POOLS}/lab", params={"drain": "true"})).status_code == 204
    assert (await machinery.client.get(f"{NODES}/{node_id}")).json()["state"] == "draining"
    assert (await machinery.row(launch_id)).wanted is False
    assert (await machinery.client.get(POOLS)).json()["items"] == []


async def test_a_launch_is_carried_on_though_the_clock_was_set_back(machinery: Machinery) -> None:
    """Its provider was asked no more until the old time had come again."""
    (launch,) = await machinery.ask()
    await machinery.step(1)
    machinery.provider.seen[HANDLE] = SeenLaunch(LaunchPhase.RUNNING)
    machinery.now -= timedelta(hours=2)
    await machinery.step()
    assert (await machinery.row(launch["id"])).state is LaunchState.RUNNING
