"""The dry run."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from api.deps import Services
from tests import factories

PLAN = "/api/v1/training/plan"
DDP = {
    "parallelism": {"strategy": "ddp"},
    "resources": {"nodes": 2},
    "training": {"steps": 100, "global_batch_size": 8, "micro_batch_size": 2},
}


async def plan(client: httpx.AsyncClient, **changes: Any) -> dict[str, Any]:
    answer = await client.post(PLAN, json=factories.job_spec(**changes).model_dump(mode="json"))
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_plan_tells_the_placement_and_the_arithmetic(client: httpx.AsyncClient, services: Services) -> None:
    async with services.write() as session:
        a, _ = await factories.create_node(session, name="a")
        b, _ = await factories.create_node(session, name="b")
    found = await plan(client, **DDP)
    assert found["placement"] == [
        {"rank": 0, "node_id": a.id, "node_name": "a", "slot": 0},
        {"rank": 1, "node_id": b.id, "node_name": "b", "slot": 0},
    ]
    assert (found["world_size"], found["strategy"], found["pending"]) == (2, "ddp", None)
    assert (found["global_batch_size"], found["micro_batch_size"], found["gradient_accumulation_steps"]) == (8, 2, 2)
    assert (found["micro_batches"], found["reproducible"]) == (4, True)
    assert found["parameter_count"] == 64 * 16 + 16 + 16 * 10 + 10
    memory = found["memory_per_rank"]
    assert memory["parameters"] == 4 * found["parameter_count"]
    assert memory["gradients"] > memory["parameters"]  # sums of the tree are held beside them
    assert memory["buffers"] > 0  # and what is packed of them for the exchange
    assert memory["activations"] > 0
    assert memory["total"] == sum(memory[part] for part in ("parameters", "gradients", "optimizer", "activations", "buffers"))
    assert memory["moment"] == "in the backward of layer 0"
    assert memory["made_from"].startswith("micro-batches of 2 samples in fp32, adamw, 3.5 copies of the gradients")
    assert found["spec"]["optimizer"]["betas"] == [0.9, 0.95]


async def test_a_plan_that_cannot_be_placed_says_why(client: httpx.AsyncClient, services: Services) -> None:
    async with services.write() as session:
        node, _ = await factories.create_node(session, name="a", slots=2)
        await factories.create_running_job(session, node)
    found = await plan(client, resources={"slots_per_node": 2}, parallelism={"strategy": "ddp"})
    assert found["placement"] is None
    assert found["pending"]["code"] == "slots_taken"
    assert found["pending"]["text"] == "needs 1 node with 2 free slots; the largest free is 1 (node a)"


async def test_a_plan_stands_behind_those_who_wait_already(client: httpx.AsyncClient, services: Services) -> None:
    async with services.write() as session:
        await factories.create_node(session, name="a", slots=1)
        await factories.create_job(session, queued_at=services.now())
    assert (await plan(client))["placement"] is None
    assert (await plan(client, priority=99))["placement"] is not None


async def test_a_plan_changes_nothing(client: httpx.AsyncClient) -> None:
    first, second = await plan(client), await plan(client)
    assert first["plan_hash"] == second["plan_hash"]
    assert first["plan_hash"] != (await plan(client, priority=51))["plan_hash"]
    assert (await client.get("/api/v1/training/jobs")).json()["items"] == []


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({"checkpoint": {"every_steps": None}}, "no checkpoint is saved before the end"),
        ({"script": {"path": "t.py"}, "model": None, "data": None, "training": None}, "a script saves its own checkpoints"),
        ({"training": {"steps": 500, "global_batch_size": 8, "eval_every_steps": None}}, "there will be no best checkpoint"),
        (DDP, "must be one that they share"),
        (DDP | {"resources": {"nodes": 3}}, "4 micro-batches over 3 ranks: the others wait for those that compute 2"),
    ],
)
async def test_warnings(client: httpx.AsyncClient, changes: dict[str, Any], warning: str) -> None:
    assert any(warning in text for text in (await plan(client, **changes))["warnings"])


async def test_too_little_memory_is_warned_of(client: httpx.AsyncClient, services: Services) -> None:
    inventory = {"gpus": [{"index": 0, "uuid": "u", "name": "tiny", "memory_bytes": 1000}]}
    async with services.write() as session:
        await factories.create_node(session, device="cuda", inventory=inventory)
    found = await plan(client)
    assert any("the smallest GPU here has 1,000" in text and "keeps fewer copies" in text for text in found["warnings"])
    assert found["memory_per_rank"]["made_from"].endswith("CUDA kernels")


async def test_a_model_of_the_user_s_own_has_no_estimate(client: httpx.AsyncClient) -> None:
    found = await plan(client, entrypoint="my_task:make", model=None, data=None)
    assert found["memory_per_rank"] is None


async def test_plan_and_submit_refuse_alike(client: httpx.AsyncClient) -> None:
    wrong = factories.job_spec().model_dump(mode="json") | {"nonsense": 1}
    answers = [await client.post(path, json=wrong) for path in (PLAN, "/api/v1/training/jobs")]
    assert [answer.status_code for answer in answers] == [422, 422]
    assert answers[0].json()["errors"] == answers[1].json()["errors"]
