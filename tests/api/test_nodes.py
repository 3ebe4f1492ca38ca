"""The contract of the node endpoints and the cluster's summary, on both databases."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from paceline.api.core.context import Services
from paceline.api.main import create_app
from paceline.api.settings import Settings
from paceline.cluster.states import NodeState
from paceline.db.models.nodes import NodeRow
from tests import factories
from tests.conftest import Connect

NODES = "/api/v1/cluster/nodes"
GPU = {"index": 0, "uuid": "GPU-1", "name": "H200", "memory_bytes": 100}
SAMPLE = {
    "host": {
        "cpu_percent": 30.0,
        "memory_used_bytes": 1,
        "memory_total_bytes": 2,
        "disk_used_bytes": 3,
        "disk_total_bytes": 4,
        "network_sent_bytes_per_second": 0.0,
        "network_received_bytes_per_second": 0.0,
        "load_1m": 1.0,
    },
    "gpus": [{"index": 0, "uuid": "GPU-1", "utilization_percent": 97.0, "throttle_reasons": [], "processes": {"12": 5}}],
    "gpu_error": None,
}


async def create(services: Services, **columns: Any) -> NodeRow:
    async with services.write() as session:
        node, _ = await factories.create_node(session, **columns)
        return node


async def state_of(client: httpx.AsyncClient, node: NodeRow) -> str:
    return str((await client.get(f"{NODES}/{node.id}")).json()["state"])


async def test_a_node_shows_its_slots_readings_and_facts(client: httpx.AsyncClient, services: Services) -> None:
    async with services.write() as session:
        inventory = {
            "gpus": [GPU],
            "cpu_count": 8,
            "memory_bytes": 9,
            "hostname": "h",
            "platform": "p",
            "versions": {"torch": "2"},
            "labels": {"rack": "1"},
        }
        node, _ = await factories.create_node(session, device="cuda", inventory=inventory, last_sample=SAMPLE, clock_skew=0.5)
        job = await factories.create_running_job(session, node)
    found = (await client.get(f"{NODES}/{node.id}")).json()
    assert found["slots"] == [
        {"index": 0, "job_id": job.id, "job_name": "digits", "rank": 0},
        {"index": 1, "job_id": None, "job_name": None, "rank": None},
    ]
    (gpu,) = found["gpus"]
    assert (gpu["name"], gpu["utilization_percent"], gpu["temperature_celsius"], gpu["processes"]) == ("H200", 97.0, None, {"12": 5})
    assert (found["cpu_count"], found["versions"], found["labels"], found["clock_skew_seconds"]) == (8, {"torch": "2"}, {"rack": "1"}, 0.5)
    assert (found["host"]["cpu_percent"], found["gpu_note"]) == (30.0, None)


async def test_a_node_without_a_gpu_says_so_and_shows_no_zero(client: httpx.AsyncClient, services: Services) -> None:
    node = await create(services, inventory={"gpus": []}, last_sample=SAMPLE | {"gpus": [], "gpu_error": "no GPU"})
    found = (await client.get(f"{NODES}/{node.id}")).json()
    assert (found["gpus"], found["gpu_note"]) == ([], "no GPU")
    assert (await client.get("/api/v1/cluster/gpu-status")).json() == {"gpus": [], "nodes_without_gpu": ["node-a"]}


async def test_the_list_is_paged_by_name_and_leaves_out_the_gone(client: httpx.AsyncClient, services: Services) -> None:
    for name in ("c", "a", "b"):
        await create(services, name=name)
    await create(services, name="x", state=NodeState.GONE)
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await client.get(NODES, params={"limit": 2, **cursor})).json()
        seen += [node["name"] for node in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert seen == ["a", "b", "c"]
    assert [node["name"] for node in (await client.get(NODES, params={"status": "gone"})).json()["items"]] == ["x"]
    assert (await client.get(NODES, params={"status": "asleep"})).json()["code"] == "invalid_parameter"


async def test_adding_a_node_gives_a_token_that_works_once(client: httpx.AsyncClient, connect: Connect) -> None:
    answer = await client.post(NODES, json={})
    invitation = answer.json()
    assert answer.status_code == 201
    assert invitation["command"] == f"paceline worker --server http://127.0.0.1:8000 --token {invitation['token']}"
    async with connect() as agent:
        join = {"token": invitation["token"], "name": "new"}
        first, second = [await agent.post("/api/v1/agents/join", json=join) for _ in range(2)]
    assert (first.status_code, second.status_code, second.json()["code"]) == (201, 401, "invalid_join_token")
    assert [(node["name"], node["state"]) for node in (await client.get(NODES)).json()["items"]] == [("new", "joining")]


@pytest.mark.parametrize(
    ("public_url", "told"),
    [
        ("", True),
        ("http://localhost:8000", True),
        ("http://127.0.1.1:8000", True),
        ("http://[::1]:8000", True),
        ("http://10.0.0.5:8000", False),
        ("https://train.example", False),
    ],
)
async def test_an_invitation_to_a_loopback_address_says_so(settings: Settings, public_url: str, told: bool) -> None:
    """`BASE_URL`, by which the client comes, is loopback, too: it counts where there is no public URL."""
    app = create_app(settings.model_copy(update={"public_url": public_url}), with_loops=False)
    async with app.router.lifespan_context(app):
        async with app.state.services.write() as session:
            _, key = await factories.create_user(session, name="admin", role="admin")
        async with Connect(app)(key) as client:
            invitation = (await client.post(NODES)).json()
    assert (public_url or "http://127.0.0.1:8000") in invitation["command"]
    if told:
        assert "'paceline up --host ADDRESS'" in invitation["warning"]
        assert "PACELINE_PUBLIC_URL" in invitation["warning"]
    else:
        assert invitation["warning"] is None


async def test_a_replayed_invitation_does_not_show_its_secret_again(client: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "k"}
    assert (await client.post(NODES, json={}, headers=headers)).status_code == 201
    assert (await client.post(NODES, json={}, headers=headers)).json()["code"] == "already_created"


async def test_cordon_and_uncordon(client: httpx.AsyncClient, services: Services) -> None:
    node = await create(services)
    for _ in range(2):
        assert (await client.put(f"{NODES}/{node.id}/cordon")).json()["state"] == "cordoned"
    for _ in range(2):
        assert (await client.put(f"{NODES}/{node.id}/uncordon")).json()["state"] == "ready"
    kinds = [event["type"] for event in (await client.get("/api/v1/events")).json()["items"]]
    assert kinds == ["node.state", "node.state"]


async def test_a_node_out_of_reach_is_cordoned_for_when_it_is_back(client: httpx.AsyncClient, services: Services) -> None:
    node = await create(services, state=NodeState.UNREACHABLE, state_before_unreachable=NodeState.READY)
    assert (await client.put(f"{NODES}/{node.id}/cordon")).json()["state"] == "unreachable"
    async with services.control.read() as session:
        assert (await session.get_one(NodeRow, node.id)).state_before_unreachable is NodeState.CORDONED


@pytest.mark.parametrize("verb", ["cordon", "uncordon"])
async def test_a_node_that_is_gone_stays_gone(client: httpx.AsyncClient, services: Services, verb: str) -> None:
    node = await create(services, state=NodeState.GONE)
    answer = await client.put(f"{NODES}/{node.id}/{verb}")
    assert (answer.status_code, answer.json()["code"]) == (409, "node_state")
    assert (await client.delete(f"{NODES}/{node.id}")).status_code == 202


@pytest.mark.parametrize(
    ("state", "force", "expected"),
    [
        (NodeState.READY, False, "draining"),
        (NodeState.CORDONED, False, "draining"),
        (NodeState.LOST, False, "gone"),
        (NodeState.JOINING, False, "gone"),
        (NodeState.UNREACHABLE, False, "unreachable"),
        (NodeState.UNREACHABLE, True, "gone"),
        (NodeState.READY, True, "draining"),
    ],
)
async def test_removing(client: httpx.AsyncClient, services: Services, state: NodeState, force: bool, expected: str) -> None:
    node = await create(services, state=state)
    for _ in range(2):
        answer = await client.delete(f"{NODES}/{node.id}", params={"force": force})
        assert (answer.status_code, answer.json()["state"]) == (202, expected)


async def test_a_removal_can_be_taken_back_while_it_waits(client: httpx.AsyncClient, services: Services) -> None:
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        job = await factories.create_running_job(session, node)
    assert (await client.delete(f"{NODES}/{node.id}")).json()["drain_blocked_by"] == [job.id]
    assert (await client.put(f"{NODES}/{node.id}/uncordon")).json()["state"] == "ready"


async def test_only_an_admin_changes_nodes(client: httpx.AsyncClient, connect: Connect, services: Services) -> None:
    node = await create(services)
    async with services.write() as session:
        _, key = await factories.create_user(session, name="mel", role="member")
    async with connect(key) as member:
        assert (await member.get(NODES)).status_code == 200
        for method, path in (
            ("POST", NODES),
            ("PUT", f"{NODES}/{node.id}/cordon"),
            ("PUT", f"{NODES}/{node.id}/uncordon"),
            ("DELETE", f"{NODES}/{node.id}"),
        ):
            answer = await member.request(method, path, json={} if method == "POST" else None)
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert await state_of(client, node) == "ready"


async def test_an_unknown_node_is_not_found(client: httpx.AsyncClient) -> None:
    assert (await client.get(f"{NODES}/nothing")).json()["code"] == "not_found"


async def test_the_summary_adds_up(client: httpx.AsyncClient, services: Services) -> None:
    async with services.write() as session:
        node, _ = await factories.create_node(session, name="a", last_sample=SAMPLE)
        await factories.create_node(session, name="b", state=NodeState.CORDONED)
        await factories.create_node(session, name="c", state=NodeState.LOST)
        await factories.create_running_job(session, node, progress={"step": 1, "tokens_per_second": 50.0})
        await factories.create_job(session)
    found = (await client.get("/api/v1/metrics/cluster/summary")).json()
    assert (found["slots_total"], found["slots_used"], found["slots_free"]) == (4, 1, 1)
    assert {count["state"]: count["count"] for count in found["jobs"]} == {"queued": 1, "running": 1}
    assert {count["state"]: count["count"] for count in found["nodes"]} == {"ready": 1, "cordoned": 1, "lost": 1}
    assert (found["tokens_per_second"], found["cpu_percent"], found["memory_total_bytes"]) == (50.0, 30.0, 2)


async def test_taints_are_replaced_and_told(client: httpx.AsyncClient, services: Services) -> None:
    node = await create(services, inventory={"labels": {"zone": "near"}, "taints": {"new": ""}})
    told = (await client.get(f"{NODES}/{node.id}")).json()
    assert (told["labels"], told["taints"]) == ({"zone": "near"}, {"new": ""})
    changed = await client.put(f"{NODES}/{node.id}/taints", json={"taints": {"dedicated": "vision"}})
    assert (changed.status_code, changed.json()["taints"]) == (200, {"dedicated": "vision"})
    emptied = await client.put(f"{NODES}/{node.id}/taints", json={"taints": {}})
    assert emptied.json()["taints"] == {}  # what its agent was started with is gone too
    refused = await client.put(f"{NODES}/{node.id}/taints", json={"taints": {"no key": "x"}})
    assert refused.status_code == 422
    events = (await client.get("/api/v1/events")).json()["items"]
    assert sorted(event["message"] for event in events if event["type"] == "node.taints") == [
        "node-a: taints dedicated=vision",
        "node-a: taints none",
    ]


async def test_admins_who_change_different_taints_at_once_lose_none(client: httpx.AsyncClient, services: Services) -> None:
    node = await create(services, inventory={"taints": {"old": "", "kept": "yes"}})
    path = f"{NODES}/{node.id}/taints"
    changes = ({"set": {"dedicated": "vision"}}, {"set": {"new": ""}}, {"remove": ["old"]}, {"set": {"zone": "a"}, "remove": ["kept=yes"]})
    answers = await asyncio.gather(*(client.patch(path, json=change) for change in changes))
    assert [answer.status_code for answer in answers] == [200] * 4
    assert (await client.get(f"{NODES}/{node.id}")).json()["taints"] == {"dedicated": "vision", "new": "", "zone": "a"}
    refused = await client.patch(path, json={"remove": ["dedicated=text"]})
    assert (refused.status_code, refused.json()["detail"]) == (
        422,
        "node node-a has no taint dedicated=text; it has: dedicated=vision, new, zone=a",
    )
    for value in ("a\nb", "\u202eabc", "\x1b[31m"):
        assert (await client.patch(path, json={"set": {"zone": value}})).status_code == 422
        assert (await client.put(path, json={"taints": {"zone": value}})).status_code == 422


async def test_the_summary_counts_the_samples_of_jobs_without_tokens(client: httpx.AsyncClient, services: Services) -> None:
    """A cluster of vision jobs had a throughput of nothing."""
    async with services.write() as session:
        for name, rates in {"a": {"tokens_per_second": 50.0, "samples_per_second": 2.0}, "b": {"samples_per_second": 30.0}}.items():
            node, _ = await factories.create_node(session, name=name)
            await factories.create_running_job(session, node, progress={"step": 1} | rates)
    found = (await client.get("/api/v1/metrics/cluster/summary")).json()
    assert (found["tokens_per_second"], found["samples_per_second"]) == (50.0, 32.0)


async def test_the_readings_of_cards_say_which_rank_holds_them(client: httpx.AsyncClient, services: Services) -> None:
    gpus = [{"index": index, "uuid": f"GPU-{index}"} for index in (2, 0)]
    async with services.write() as session:
        node, _ = await factories.create_node(session, name="a", device="cuda", last_sample=SAMPLE | {"gpus": gpus})
        job = await factories.create_running_job(session, node)
    (held, free) = (await client.get("/api/v1/cluster/gpu-status")).json()["gpus"]
    assert (held["index"], held["job_id"], held["job_name"], held["rank"]) == (2, job.id, "digits", 0)
    assert (free["index"], free["job_id"], free["job_name"], free["rank"]) == (0, None, None, None)


async def test_two_agents_of_one_machine_have_its_memory_once(client: httpx.AsyncClient, services: Services) -> None:
    for name in ("a", "b"):
        await create(services, name=name, inventory={"machine": "m"}, last_sample=SAMPLE)
    await create(services, name="c", inventory={"machine": "other"}, last_sample=SAMPLE)
    await create(services, name="untold", last_sample=SAMPLE)
    assert (await client.get("/api/v1/metrics/cluster/summary")).json()["memory_total_bytes"] == 3 * 2


async def test_the_summary_leaves_out_a_machine_that_its_agent_could_not_read(client: httpx.AsyncClient, services: Services) -> None:
    await create(services, name="a", last_sample=SAMPLE)
    before = (await client.get("/api/v1/metrics/cluster/summary")).json()
    await create(services, name="b", last_sample=SAMPLE | {"host": None})
    found = (await client.get("/api/v1/metrics/cluster/summary")).json()
    assert (found["cpu_percent"], found["memory_total_bytes"]) == (before["cpu_percent"], before["memory_total_bytes"])


async def test_the_summary_has_means_and_sums_of_the_cards_that_tell(client: httpx.AsyncClient, services: Services) -> None:
    told = {"memory_used_bytes": 30, "memory_total_bytes": 80, "utilization_percent": 90.0, "power_watts": 300.0}
    lost = {"index": 1, "uuid": "GPU-2", "error": "GPU is lost"}
    half = {"index": 0, "uuid": "GPU-3", "utilization_percent": 30.0, "power_watts": None}
    await create(services, name="a", last_sample=SAMPLE | {"gpus": [{"index": 0, "uuid": "GPU-1"} | told, lost]})
    await create(services, name="b", last_sample=SAMPLE | {"gpus": [half]})
    await create(services, name="away", state=NodeState.LOST, last_sample=SAMPLE | {"gpus": [told]})
    found = (await client.get("/api/v1/metrics/cluster/summary")).json()
    assert (found["gpu_percent"], found["gpu_power_watts"]) == (60.0, 300.0)
    assert (found["gpu_memory_used_bytes"], found["gpu_memory_total_bytes"]) == (30, 80)


async def test_where_no_card_tells_its_power_the_summary_says_unknown_and_not_zero(client: httpx.AsyncClient, services: Services) -> None:
    await create(services, last_sample=SAMPLE | {"gpus": []})
    found = (await client.get("/api/v1/metrics/cluster/summary")).json()
    assert (found["gpu_percent"], found["gpu_power_watts"]) == (None, None)
