"""How fast a job is, where its steps' time goes, and MFU with whatever it was computed from."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from paceline.api.core.context import Services
from paceline.api.services.history.performance import utilization
from paceline.db.models.jobs import JobRow
from paceline.db.repositories import nodes as node_rows
from paceline.monitoring.points import STEP_PARTS, MetricRecord, RankBatch
from paceline.training.spec.job import JobSpec
from tests import factories
from tests.factories import MetricValues

GPT: dict[str, Any] = {"model": {"kind": "gpt"}, "data": {"kind": "stdlib_text"}, "precision": "bf16"}
HF_FOLDER: dict[str, Any] = GPT | {"model": {"kind": "hf", "path": "/models/mine"}}
H100 = {"index": 0, "uuid": "GPU-0", "name": "NVIDIA H100 80GB HBM3", "memory_bytes": 1}


def step(number: int, seconds: float, *, waits: float = 0.0, **values: float) -> MetricRecord:
    parts: MetricValues = {**dict.fromkeys(STEP_PARTS, 0.0), "communication_seconds": waits, "forward_seconds": seconds - waits}
    known: MetricValues = {"step_seconds": seconds, "samples_per_second": 8 / seconds, "tokens_per_second": 1024 / seconds, **parts}
    return MetricRecord(seq=number, step=number, time=float(number), values={**known, **values})


async def running(services: Services, spec: JobSpec, **node: Any) -> JobRow:
    async with services.write() as session:
        row, _ = await factories.create_node(session, **node)
        return await factories.create_running_job(session, row, spec=spec)


async def ask(client: httpx.AsyncClient, job: JobRow) -> dict[str, Any]:
    answer = await client.get(f"/api/v1/training/jobs/{job.id}/performance")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_rates_are_of_the_newest_steps_and_parts_add_up(app: FastAPI, services: Services, client: httpx.AsyncClient) -> None:
    job = await running(services, factories.job_spec(**GPT))
    slow = [step(number, 100.0) for number in range(1, 11)]  # older than the newest fifty
    told = [step(number, 2.0 if number % 2 else 1.0, waits=0.25, peak_memory_bytes=number) for number in range(11, 61)]
    await app.state.writer.store([RankBatch(job_id=job.id, generation=1, rank=0, metrics=[*slow, *told])])
    others = [MetricRecord(seq=1, step=1, time=0.0, values={"peak_memory_bytes": 99.0, "step_seconds": 1.0})]
    await app.state.writer.store([RankBatch(job_id=job.id, generation=1, rank=1, metrics=others)])
    found = await ask(client, job)
    assert (found["steps"], found["step_seconds"]) == (50, 1.5)
    assert found["samples_per_second"] == pytest.approx(8 / 1.5)
    assert found["tokens_per_second"] == pytest.approx(1024 / 1.5)
    assert sum(part["seconds"] for part in found["parts"]) == pytest.approx(1.5)
    assert found["exposed_communication"] == pytest.approx(0.25 / 1.5)
    assert found["peak_memory"] == [{"rank": 0, "bytes": 60.0}, {"rank": 1, "bytes": 99.0}]


async def test_communication_of_which_ranks_know_a_part_only_is_not_told_as_next_to_nothing(
    app: FastAPI, services: Services, client: httpx.AsyncClient
) -> None:
    job = await running(services, factories.job_spec(**GPT))
    told = [step(1, 2.0), step(2, 2.0)]
    for record in told:
        record.values.pop("communication_seconds")
    await app.state.writer.store([RankBatch(job_id=job.id, generation=1, rank=0, metrics=told)])
    found = await ask(client, job)
    assert found["exposed_communication"] is None
    assert [part["name"] for part in found["parts"]] == [part for part in STEP_PARTS if part != "communication_seconds"]
    assert sum(part["seconds"] for part in found["parts"]) == pytest.approx(2.0)


async def test_beside_parameter_servers_times_are_those_of_the_first_worker(
    app: FastAPI, services: Services, client: httpx.AsyncClient
) -> None:
    """Rank 0 is a server, which waits all the time."""
    served = {"parallelism": {"strategy": "parameter_server", "servers": 2}, "resources": {"slots": 4}}
    job = await running(services, factories.job_spec(**GPT | served))
    for rank, waits in enumerate((1.8, 1.8, 0.5, 0.5)):
        told = [step(1, 2.0, waits=waits, overlapped_communication_seconds=waits / 2)]
        await app.state.writer.store([RankBatch(job_id=job.id, generation=1, rank=rank, metrics=told)])
    found = await ask(client, job)
    assert (found["timed_rank"], found["exposed_communication"], found["overlapped_communication"]) == (2, 0.25, 0.125)
    assert found["step_seconds"] == 2.0


async def test_bytes_are_those_of_the_rank_that_sends_most(app: FastAPI, services: Services, client: httpx.AsyncClient) -> None:
    job = await running(services, factories.job_spec(**GPT))
    told = [step(1, 1.0, world_sent_bytes=240.0, tensor_sent_bytes=10.0), step(2, 3.0, world_sent_bytes=240.0, tensor_sent_bytes=30.0)]
    sent: MetricValues = {"step_seconds": 1.0, "tensor_sent_bytes": 50.0, "world_sent_bytes": 240.0}
    other = [MetricRecord(seq=1, step=1, time=0.0, values=sent)]
    for rank, records in enumerate((told, other)):
        await app.state.writer.store([RankBatch(job_id=job.id, generation=1, rank=rank, metrics=records)])
    assert (await ask(client, job))["traffic"] == [
        {"axis": "tensor", "rank": 1, "bytes_per_step": 50.0, "bytes_per_second": 25.0},
        {"axis": "world", "rank": 0, "bytes_per_step": 240.0, "bytes_per_second": 120.0},
    ]


@pytest.mark.parametrize(("device", "uncounted"), [("cuda", ["tensor"]), ("cpu", [])])
async def test_an_axis_that_torch_itself_sends_along_is_said_not_to_be_counted(
    services: Services, client: httpx.AsyncClient, device: str, uncounted: list[str]
) -> None:
    """On a CPU its bytes are counted, and a job without it sends none."""
    node = {"device": device, "inventory": {"gpus": [H100] if device == "cuda" else []}}
    split = {"parallelism": {"strategy": "fsdp", "tensor": 2}, "resources": {"slots": 2}}
    assert (await ask(client, await running(services, factories.job_spec(**GPT | split), **node)))["uncounted"] == uncounted


async def test_what_is_overlapped_is_a_share_of_the_steps_that_tell(app: FastAPI, services: Services, client: httpx.AsyncClient) -> None:
    job = await running(services, factories.job_spec(**GPT))
    told = [step(1, 1.0, overlapped_communication_seconds=0.5), step(2, 3.0, overlapped_communication_seconds=0.5), step(3, 9.0)]
    await app.state.writer.store([RankBatch(job_id=job.id, generation=1, rank=0, metrics=told)])
    assert (await ask(client, job))["overlapped_communication"] == pytest.approx(0.25)


async def test_mfu_comes_with_its_formula_and_the_peak(app: FastAPI, services: Services, client: httpx.AsyncClient) -> None:
    job = await running(services, factories.job_spec(**GPT), device="cuda", inventory={"gpus": [H100]})
    await app.state.writer.store([RankBatch(job_id=job.id, generation=1, rank=0, metrics=[step(1, 8 / 1000)])])
    mfu = (await ask(client, job))["mfu"]
    assert mfu["value"] == pytest.approx(1000 * mfu["flops_per_sample"] / 989.5e12)
    assert mfu["peak_flops"] == 989.5e12
    assert mfu["formula"].startswith("6N + 12·l·d·t per token (PaLM, appendix B), N=3,279,104")
    assert (mfu["devices"], mfu["sources"]) == (["NVIDIA H100 80GB HBM3"], ["NVIDIA H100 datasheet, SXM5"])


async def test_mfu_is_that_of_the_cards_that_the_job_ran_on_whatever_the_node_offers_now(
    app: FastAPI, services: Services, client: httpx.AsyncClient
) -> None:
    """It changed with the order of --gpus, and went once the agent offered CPU slots."""
    a100 = {"index": 1, "uuid": "GPU-1", "name": "NVIDIA A100-SXM4-80GB", "memory_bytes": 1}
    job = await running(services, factories.job_spec(**GPT), device="cuda", inventory={"gpus": [H100, a100]})
    await app.state.writer.store([RankBatch(job_id=job.id, generation=1, rank=0, metrics=[step(1, 8 / 1000, mfu=0.25)])])
    before = (await ask(client, job))["mfu"]
    assert before["devices"] == ["NVIDIA H100 80GB HBM3"]
    async with services.write() as session:
        (node,) = await node_rows.present(session)
        node.inventory = {"gpus": [a100, H100]}  # --gpus 1,0
    assert (await ask(client, job))["mfu"] == before
    async with services.write() as session:
        (node,) = await node_rows.present(session)
        node.device, node.inventory = "cpu", {"gpus": []}
    after = (await ask(client, job))["mfu"]
    assert (after["value"], after["peak_flops"]) == (0.25, None)
    assert after["text"] == "25.0% of the GPUs that it ran on, as its ranks reported it, in bf16"


async def test_what_a_rank_has_counted_stands_in_for_a_formula(app: FastAPI, services: Services, client: httpx.AsyncClient) -> None:
    job = await running(services, factories.job_spec(**HF_FOLDER), device="cuda", inventory={"gpus": [H100]})
    await app.state.writer.store([RankBatch(job_id=job.id, generation=1, rank=0, metrics=[step(1, 8 / 1000, flops_per_sample=6e9)])])
    mfu = (await ask(client, job))["mfu"]
    assert (mfu["flops_per_sample"], mfu["flops_per_second"]) == (6e9, pytest.approx(6e12))
    assert mfu["value"] == pytest.approx(6e12 / 989.5e12)
    assert mfu["formula"] == "as torch counts it on the built model, forward and backward"


async def test_a_pipeline_s_bubble_stands_beside_its_formula(app: FastAPI, services: Services, client: httpx.AsyncClient) -> None:
    length = {"steps": 9, "global_batch_size": 8, "micro_batch_size": 1}
    spec = factories.job_spec(parallelism={"pipeline": 2}, resources={"nodes": 2}, training=length)
    job = await running(services, spec)
    told = [step(1, 1.0, pipeline_bubble=0.5), step(2, 3.0, pipeline_bubble=0.1)]
    await app.state.writer.store([RankBatch(job_id=job.id, generation=1, rank=0, metrics=told)])
    bubble = (await ask(client, job))["bubble"]
    assert bubble["measured"] == pytest.approx(0.2)
    assert bubble["formula"] == pytest.approx(1 / 9)
    assert bubble["text"] == "1f1b, 8 micro-batches through 2 stages on 2 ranks"


async def test_before_the_first_step_nothing_is_claimed(services: Services, client: httpx.AsyncClient) -> None:
    found = await ask(client, await running(services, factories.job_spec()))
    assert (found["steps"], found["step_seconds"], found["exposed_communication"], found["parts"]) == (0, None, None, [])
    assert (found["overlapped_communication"], found["traffic"]) == (None, [])
    assert (found["mfu"]["value"], found["bubble"]) == (None, None)


@pytest.mark.parametrize(
    ("spec", "devices", "words"),
    [
        (GPT, ["cpu"], "not available: no peak FLOP/s is published for this CPU"),
        (GPT, ["NVIDIA H200", "NVIDIA Test 80GB"], "not available: no peak FLOP/s is known for NVIDIA Test 80GB in bf16"),
        (GPT, [], "not available: the job has no ranks yet"),
        (
            HF_FOLDER,
            ["NVIDIA H200"],
            "not available: what this model computes is counted on its ranks: no step is done yet, or their output says why not",
        ),
        (
            {"model": None, "data": None, "entrypoint": "a:b"},
            ["NVIDIA H200"],
            "not available: what a model of your own computes is not known; give Task.flops_per_sample",
        ),
    ],
)
def test_what_is_not_known_is_said_not_guessed(spec: dict[str, Any], devices: list[str], words: str) -> None:
    found = utilization(factories.job_spec(**spec), devices, samples_per_second=10.0)
    assert (found.value, found.text) == (None, words)


def test_the_peaks_of_all_ranks_add_up() -> None:
    one, two = (utilization(factories.job_spec(**GPT), ["NVIDIA H200"] * ranks, samples_per_second=10.0) for ranks in (1, 2))
    assert one.value is not None
    assert two.value == pytest.approx(one.value / 2)


async def test_prometheus_sees_running_jobs(services: Services, client: httpx.AsyncClient) -> None:
    job = await running(services, factories.job_spec())
    async with services.write() as session:
        row = await session.get(JobRow, job.id)
        assert row is not None
        row.progress = {"step": 7, "samples_per_second": 12.5}
    text = (await client.get("/metrics")).text
    assert f'paceline_job_step{{job="digits",job_id="{job.id}"}} 7.0' in text
    assert f'paceline_job_samples_per_second{{job="digits",job_id="{job.id}"}} 12.5' in text
    assert "paceline_job_mfu_ratio{" not in text
