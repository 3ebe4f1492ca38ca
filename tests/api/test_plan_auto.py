"""`strategy: auto`: planned, submitted, looked at, resized."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from paceline.api.core.context import Services
from tests import factories

PLAN, JOBS = "/api/v1/training/plan", "/api/v1/training/jobs"
GPT = {"kind": "gpt", "layers": 4, "dim": 64, "heads": 4, "context": 64}
MIB = 2**20
#: What a user gives who wants no axes but replicas and shards.
ONLY_DATA = {"strategy": "auto", "tensor": 1, "pipeline": 1, "context": 1}


def auto(**changes: Any) -> dict[str, Any]:
    """As a user writes it: what is not mentioned is open."""
    document = {
        "name": "auto",
        "model": GPT,
        "data": {"kind": "stdlib_text"},
        "parallelism": {"strategy": "auto"},
        "resources": {"nodes": 2},
        "training": {"steps": 10, "global_batch_size": 8},
    }
    return document | changes


async def two_nodes(services: Services, **columns: Any) -> None:
    async with services.write() as session:
        for name in ("a", "b"):
            await factories.create_node(session, name=name, slots=1, inventory={"hostname": name, "memory_bytes": 2**33} | columns)


async def answered(client: httpx.AsyncClient, path: str, document: dict[str, Any]) -> dict[str, Any]:
    answer = await client.post(path, json=document)
    assert answer.status_code in (200, 201), answer.text
    found: dict[str, Any] = answer.json()
    return found


async def refused(client: httpx.AsyncClient, document: dict[str, Any]) -> dict[str, Any]:
    answers = [await client.post(path, json=document) for path in (PLAN, JOBS)]
    assert [answer.status_code for answer in answers] == [422, 422]
    assert answers[0].json()["errors"] == answers[1].json()["errors"]
    problem: dict[str, Any] = answers[0].json()
    return problem


async def test_replicas_where_there_is_room(client: httpx.AsyncClient, services: Services) -> None:
    await two_nodes(services)
    found = await answered(client, PLAN, auto())
    choice = found["choice"]
    assert (found["strategy"], found["reproducible"]) == ("ddp", True)
    assert found["spec"]["training"]["micro_batch_size"] == choice["chosen"]["micro_batch_size"] == found["micro_batch_size"]
    assert choice["asked"] == ["parallelism.strategy: auto"]
    assert choice["why"].startswith("Replicate 2, ")
    assert choice["why"].count(". ") == 1
    assert choice["assumed"].startswith("assumed, since it is not measured: 60 GFLOP/s a slot")
    assert choice["budget_bytes"] == int(0.9 * 2**33)
    assert {option["axes"] for option in choice["rejected"]} == {"replicate 2", "shard 2", "pipeline 2", "context 2"}
    assert all(option["why"] and option["memory_bytes"] and option["step_seconds"] for option in choice["rejected"])


async def test_a_model_of_transformers_is_planned_by_its_configuration(client: httpx.AsyncClient, services: Services) -> None:
    """Its plans are those that jobs can have: no parts of sequences, and no more parts of matrices than there are shared heads."""
    await two_nodes(services)
    sizes = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = {"kind": "hf", "context": 64, "config": {"model_type": "llama", "num_key_value_heads": 1, **sizes}}
    found = await answered(client, PLAN, auto(model=model))
    assert (found["strategy"], found["choice"]["chosen"]["axes"]) == ("ddp", "replicate 2")
    assert found["memory_per_rank"]["total"] == found["choice"]["chosen"]["memory_bytes"]
    assert {option["axes"] for option in found["choice"]["rejected"]} == {"replicate 2", "shard 2", "pipeline 2"}


async def test_shards_where_a_slot_is_said_to_hold_less(client: httpx.AsyncClient, services: Services) -> None:
    await two_nodes(services)
    roomy = await answered(client, PLAN, auto(parallelism=ONLY_DATA))
    least = min(option["memory_bytes"] for option in roomy["choice"]["rejected"])
    stated = {"nodes": 2, "memory_per_slot": f"{(least / 0.9 / MIB):.3f}MiB"}
    found = await answered(client, PLAN, auto(parallelism=ONLY_DATA, resources=stated))
    assert found["strategy"] == "fsdp, shard 2"
    assert found["memory_per_rank"]["total"] == found["choice"]["chosen"]["memory_bytes"] <= found["choice"]["budget_bytes"]
    assert found["spec"]["parallelism"] | {"strategy": "fsdp", "shard": None} == found["spec"]["parallelism"]
    assert "more than there is" in " ".join(option["why"] for option in found["choice"]["rejected"])


async def test_nothing_fits_is_refused_with_the_way_out(client: httpx.AsyncClient, services: Services) -> None:
    await two_nodes(services)
    problem = await refused(client, auto(resources={"nodes": 2, "memory_per_slot": "1MiB"}))
    assert problem["code"] == "nothing_fits"
    assert problem["errors"][0]["pointer"] == "/parallelism/strategy"
    assert "Nothing fits: the smallest plan, " in problem["detail"]
    assert "It would fit with " in problem["detail"]


async def test_an_elastic_job_is_not_cut(client: httpx.AsyncClient, services: Services) -> None:
    await two_nodes(services)
    elastic = {"nodes": 2, "min_nodes": 1, "max_nodes": 4}
    assert (await answered(client, PLAN, auto(resources=elastic)))["micro_batch_size"] <= 2
    problem = await refused(client, auto(resources=elastic | {"memory_per_slot": "4MiB"}))
    assert problem["detail"].endswith("without resources.min_nodes and max_nodes it may be cut.")


async def test_what_is_given_is_kept(client: httpx.AsyncClient, services: Services) -> None:
    await two_nodes(services)
    given = {"strategy": "auto", "shard": 2, "activation_checkpointing": "selective"}
    found = await answered(client, PLAN, auto(parallelism=given, training={"steps": 1, "global_batch_size": 8, "micro_batch_size": 2}))
    assert found["choice"]["chosen"]["name"] == "shard 2, selective activation checkpointing, micro-batches of 2"
    assert found["choice"]["asked"][1:] == [
        "parallelism.shard: 2",
        "parallelism.activation_checkpointing: selective",
        "training.micro_batch_size: 2",
    ]
    problem = await refused(client, auto(parallelism={"strategy": "auto", "shard": 3}))
    assert "with shard=3 as given" in problem["detail"]


async def test_reproducible_is_kept(client: httpx.AsyncClient, services: Services) -> None:
    await two_nodes(services)
    found = await answered(client, PLAN, auto(reproducible=True))
    assert {option["axes"] for option in found["choice"]["rejected"]} == {"replicate 2"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"entrypoint": "my_task:make", "model": None, "data": None}, "an entrypoint's; use ddp or fsdp"),
        ({"resources": {"slots_per_node": 8}}, "no node with 8 slots that the job may use has joined"),
        (
            {"parallelism": ONLY_DATA, "training": {"steps": 1, "global_batch_size": 1}},
            "global_batch_size=1 cannot be shared out over 2 ranks",
        ),
    ],
)
async def test_what_cannot_be_planned_is_refused(
    client: httpx.AsyncClient, services: Services, changes: dict[str, Any], words: str
) -> None:
    await two_nodes(services)
    assert words in (await refused(client, auto(**changes)))["detail"]


async def test_a_node_that_has_not_said_what_it_has_needs_a_stated_budget(client: httpx.AsyncClient, services: Services) -> None:
    async with services.write() as session:
        await factories.create_node(session, slots=2)
    problem = await refused(client, auto(resources={"slots_per_node": 2}))
    assert problem["code"] == "cannot_choose"
    assert "state resources.memory_per_slot" in problem["detail"]


async def test_a_gpu_s_memory_and_peak_are_known(client: httpx.AsyncClient, services: Services) -> None:
    gpu = {"index": 0, "uuid": "u", "name": "NVIDIA H100 80GB HBM3", "memory_bytes": 80 * 2**30}
    async with services.write() as session:
        await factories.create_node(session, slots=1, device="cuda", inventory={"gpus": [gpu], "memory_bytes": 1})
    found = await answered(client, PLAN, auto(precision="bf16", resources={"nodes": 1}))
    assert found["choice"]["budget_bytes"] == int(0.9 * 80 * 2**30)
    assert "40% of 989.5 TFLOP/s (NVIDIA H100 datasheet, SXM5)" in found["choice"]["assumed"]


async def test_a_job_keeps_what_was_chosen_and_what_was_asked(client: httpx.AsyncClient, services: Services) -> None:
    await two_nodes(services)
    planned = await answered(client, PLAN, auto())
    job = await answered(client, f"{JOBS}?plan_hash={planned['plan_hash']}", auto())
    assert job["spec"] == planned["spec"]
    assert job["spec"]["parallelism"]["strategy"] == "ddp"
    assert job["choice"] == planned["choice"]
    assert (await client.get(f"{JOBS}/{job['id']}")).json()["choice"] == job["choice"]
    events = (await client.get(f"{JOBS}/{job['id']}/events")).json()["items"]
    assert [(each["type"], each["cause"]) for each in events][-1] == ("job.planned", "parallelism.strategy: auto")


async def test_a_plan_that_was_seen_and_is_another_by_now(client: httpx.AsyncClient, services: Services) -> None:
    await two_nodes(services)
    planned = await answered(client, PLAN, auto())
    answer = await client.post(f"{JOBS}?plan_hash={planned['plan_hash']}", json=auto(parallelism={"strategy": "auto", "shard": 2}))
    assert answer.json()["code"] == "plan_changed"


async def test_a_model_parallel_job_is_not_resized_to_what_does_not_fit(client: httpx.AsyncClient, services: Services) -> None:
    await two_nodes(services)
    length = {"steps": 10, "global_batch_size": 8, "micro_batch_size": 2}
    roomy = await answered(client, PLAN, auto(parallelism=ONLY_DATA, training=length))
    least = min(option["memory_bytes"] for option in roomy["choice"]["rejected"])
    stated = {"nodes": 2, "memory_per_slot": int(least / 0.9) + 1}
    job = await answered(client, JOBS, auto(parallelism=ONLY_DATA, training=length, resources=stated))
    answers = [await client.put(f"{JOBS}/{job['id']}/resize", json={"nodes": nodes}, headers={"If-Match": "*"}) for nodes in (1, 4)]
    assert [answer.status_code for answer in answers] == [409, 200]
    assert "a rank would need " in answers[0].json()["detail"]
    assert answers[1].json()["strategy"] == "fsdp, shard 4"
