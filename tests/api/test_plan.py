"""The dry run."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from paceline.api.core.context import Services
from tests import factories

PLAN = "/api/v1/training/plan"
DDP = {
    "parallelism": {"strategy": "ddp"},
    "resources": {"nodes": 2},
    "training": {"steps": 100, "global_batch_size": 8, "micro_batch_size": 2},
}


SPLIT = {
    "parallelism": {"pipeline": 2},
    "resources": {"nodes": 2},
    "training": {"steps": 100, "global_batch_size": 8, "micro_batch_size": 8},
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
    found = await plan(client, **DDP | {"resources": {"nodes": 2, "spread": True}})
    assert found["placement"] == [
        {"rank": 0, "node_id": a.id, "node_name": "a", "slot": 0, "place": {"replicate": 0}},
        {"rank": 1, "node_id": b.id, "node_name": "b", "slot": 0, "place": {"replicate": 1}},
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
    assert memory["made_from"].startswith("micro-batches of 2 samples in fp32, adamw, 3.5 gradient copies")
    assert found["spec"]["optimizer"]["betas"] == [0.9, 0.95]


async def test_a_plan_tells_what_each_stage_has(client: httpx.AsyncClient) -> None:
    gpt = {"model": {"kind": "gpt", "layers": 6}, "data": {"kind": "stdlib_text"}, "resources": {"nodes": 4}}
    found = await plan(client, **gpt, parallelism={"pipeline": 2, "pipeline_schedule": "interleaved_1f1b"})
    assert found["strategy"] == "ddp, replicate 2 x pipeline 2"
    assert [stage["place"] for stage in found["stages"]] == [0, 1, 0, 1]
    assert found["stages"][0]["layers"].startswith("the embedding, block")
    assert found["stages"][-1]["layers"].endswith("the head, the loss")
    assert (await plan(client, **DDP))["stages"] == []


async def test_a_plan_over_two_axes_deals_to_its_data_ranks_and_shows_a_part_of_the_model(client: httpx.AsyncClient) -> None:
    gpt = {"model": {"kind": "gpt", "layers": 2, "heads": 2, "dim": 32, "context": 16}, "data": {"kind": "stdlib_text"}}
    whole = await plan(client, **DDP, **gpt)
    found = await plan(client, **DDP | {"parallelism": {"tensor": 2}, "resources": {"nodes": 4}}, **gpt)
    assert (found["world_size"], found["strategy"], found["reproducible"]) == (4, "ddp, tensor 2 x replicate 2", False)
    assert (found["micro_batches"], found["gradient_accumulation_steps"]) == (4, 2)
    assert found["memory_per_rank"]["parameters"] == pytest.approx(whole["memory_per_rank"]["parameters"] / 2, rel=0.01)


async def test_a_plan_that_cannot_be_placed_says_why(client: httpx.AsyncClient, services: Services) -> None:
    async with services.write() as session:
        node, _ = await factories.create_node(session, name="a", slots=2)
        await factories.create_running_job(session, node)
    found = await plan(client, resources={"slots_per_node": 2}, parallelism={"strategy": "ddp"})
    assert found["placement"] is None
    assert found["pending"]["code"] == "slots_taken"
    assert found["pending"]["text"] == "needs 1 node with 2 free slots; the largest available node is a (1 free slot)"


async def test_a_plan_stands_behind_jobs_that_wait_already(client: httpx.AsyncClient, services: Services) -> None:
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
        ({"script": {"path": "t.py"}, "model": None, "data": None, "training": None}, "is on that node alone: save where all"),
        ({"training": {"steps": 500, "global_batch_size": 8, "eval_every_steps": None}}, "there will be no best checkpoint"),
        ({"environment": {"variables": {"HF_TOKEN": "hf_x"}}}, "environment.variables has HF_TOKEN: everybody who sees the job can"),
        (DDP, "must be on shared storage"),
        (DDP | {"resources": {"nodes": 3}}, "4 micro-batches over 3 ranks: the others wait for those that compute 2"),
        (SPLIT, "one micro-batch through 2 stages on 2 ranks: a rank idles for 50% of a step by the formula of 1f1b; a smaller"),
    ],
)
async def test_warnings(client: httpx.AsyncClient, changes: dict[str, Any], warning: str) -> None:
    assert any(warning in text for text in (await plan(client, **changes))["warnings"])


async def test_too_little_memory_is_warned_of(client: httpx.AsyncClient, services: Services) -> None:
    inventory = {"gpus": [{"index": 0, "uuid": "u", "name": "tiny", "memory_bytes": 1000}]}
    async with services.write() as session:
        await factories.create_node(session, device="cuda", inventory=inventory)
    found = await plan(client)
    assert any("the smallest GPU here has 1000 B" in text and "keeps fewer copies" in text for text in found["warnings"])
    assert found["memory_per_rank"]["made_from"].endswith("CUDA kernels")
    on_cpus = await plan(client, resources={"device": "cpu"})
    assert on_cpus["memory_per_rank"]["made_from"].endswith("CPU kernels")
    assert not any("the smallest GPU here" in text for text in on_cpus["warnings"])


async def test_more_than_a_slot_is_said_to_hold_is_warned_of(client: httpx.AsyncClient) -> None:
    found = await plan(client, reproducible=False, resources={"memory_per_slot": "10kB"})
    assert any("resources.memory_per_slot is 9.8 KiB: use strategy auto" in text for text in found["warnings"])


async def test_a_micro_batch_that_is_to_be_found_is_not_guessed(client: httpx.AsyncClient) -> None:
    found = await plan(client, training={"steps": 100, "global_batch_size": 8, "micro_batch_size": "auto"})
    assert (found["micro_batch_size"], found["micro_batches"], found["memory_per_rank"]) == (None, None, None)


async def test_a_model_of_the_user_s_own_has_no_estimate(client: httpx.AsyncClient) -> None:
    found = await plan(client, entrypoint="my_task:make", model=None, data=None)
    assert found["memory_per_rank"] is None


async def test_plan_and_submit_refuse_alike(client: httpx.AsyncClient) -> None:
    wrong = factories.job_spec().model_dump(mode="json") | {"nonsense": 1}
    answers = [await client.post(path, json=wrong) for path in (PLAN, "/api/v1/training/jobs")]
    assert [answer.status_code for answer in answers] == [422, 422]
    assert answers[0].json()["errors"] == answers[1].json()["errors"]


async def test_a_plan_tells_what_crosses_the_network(client: httpx.AsyncClient, services: Services) -> None:
    async with services.write() as session:
        await factories.create_node(session, name="a", slots=4)
        await factories.create_node(session, name="b", slots=2)
    gpt = {"model": {"kind": "gpt"}, "data": {"kind": "stdlib_text"}, "training": {"steps": 9, "global_batch_size": 12}}
    cut = gpt | {"parallelism": {"tensor": 2}}
    found = (await plan(client, **cut, resources={"slots": 6}))["network"]
    assert found["ranks_by_node"] == [4, 2]
    assert found["text"] == (
        "replicate 3 (gradients, once a step); 4 + 2 ranks on a, b; within a node: tensor 2 (activations, in every block)"
    )
    assert [(axis["axis"], axis["between_nodes"]) for axis in found["axes"]] == [("tensor", False), ("replicate", True)]
    assert (await plan(client, **cut, resources={"nodes": 2}))["network"]["text"] == "no traffic, all 2 ranks are on one node"
    measured = await plan(client, **gpt, parallelism={"strategy": "ddp"}, communication="auto", resources={"slots": 6})
    assert measured["network"]["text"] == (
        "replicate 6 (gradients, once a step, in whichever way is measured to be fastest); 4 + 2 ranks on a, b"
    )
    torn = await plan(client, **cut, resources={"nodes": 2, "spread": True})
    assert any(words.startswith("tensor=2 spans nodes") and "resources.slots_per_node=2" in words for words in torn["warnings"])
