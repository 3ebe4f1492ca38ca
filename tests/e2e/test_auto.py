"""A model that no single rank can hold within its stated memory, trained under the plan that auto gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.specs import tiny_gpt
from tests.e2e.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

MIB = 2**20
STEPS = 60
MODEL = {"kind": "gpt", "layers": 4, "heads": 4, "dim": 128, "context": 64}


def auto_gpt(name: str, budget: int, **training: Any) -> dict[str, Any]:
    spec = tiny_gpt(name, steps=STEPS, model=MODEL, parallelism={"strategy": "auto"})
    return spec | {"resources": {"nodes": 2, "memory_per_slot": budget}, "training": spec["training"] | training}


def events_of(stack: Stack, job_id: str, kind: str) -> list[dict[str, Any]]:
    return [event for event in stack.get(f"/training/jobs/{job_id}/events")["items"] if event["type"] == kind]


def test_a_model_too_large_for_one_rank_trains_under_the_plan_that_auto_gives(stack: Stack, tmp_path: Path) -> None:
    """And keeps to the memory that was stated: its micro-batch is found by measuring real steps."""
    spec = auto_gpt("too-large", 20 * MIB, micro_batch_size="auto")
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps(spec))
    server = ("--server", stack.server, "--api-key", stack.api_key)
    planned = stack.paceline("plan", str(file), *server)
    rows = dict(line.split("  ", 1) for line in planned.stdout.splitlines() if "  " in line)
    assert rows["asked for"].strip() == "parallelism.strategy: auto, training.micro_batch_size: auto", planned.stderr
    assert rows["chosen"].strip().startswith("Shard 2, ")
    assert rows["replicate 2, full activation checkpointing, micro-batches of 4"].endswith("more than there is")

    job_id = stack.submit(spec)
    stack.wait_for_step(job_id, 5)
    job = stack.job(job_id)
    assert job["strategy"] == "fsdp, shard 2"
    assert all("more than" in option["why"] for option in job["choice"]["rejected"] if option["axes"] == "replicate 2")
    (found,) = events_of(stack, job_id, "job.micro_batch")
    assert found["data"]["peak_bytes"] <= found["data"]["limit_bytes"] < 20 * MIB
    assert job["spec"]["training"]["micro_batch_size"] == found["data"]["size"]

    stack.change("PUT", job_id, "pause")
    stack.wait_for_state(job_id, "paused")
    stack.change("PUT", job_id, "resume")
    done = stack.wait_for_state(job_id, "completed", "failed", timeout=200)
    assert done["state"] == "completed", done
    assert len(events_of(stack, job_id, "job.micro_batch")) == 1
    curve = stack.raw_curve(job_id)
    assert [step for step, _ in curve] == list(range(1, STEPS + 1))
    assert curve[-1][1] < curve[0][1] - 0.5

    shown = stack.paceline("show", job_id, *server)
    assert job["choice"]["why"] in shown.stdout, shown.stderr
