"""A whole stack: a coordinator and an agent with this machine's GPUs, a job on one of them, and the `kill -9` of its rank."""

from __future__ import annotations

import importlib.util
from typing import Any

from paceline.cli.answers import parsed
from paceline.cli.api_types import GpuStatus, Incident, Job, Performance
from scripts.gpu_check.machine import Machine, RowSkippedError
from scripts.gpu_check.outcome import RowFailedError, Seen

#: What the coordinator and its client import beyond what the other rows need.
PACKAGES = ("aiosqlite", "alembic", "cryptography", "fastapi", "httpx", "psutil", "sqlalchemy", "ulid", "uvicorn", "websockets")
STEPS, QUICK_STEPS = 500, 60
#: A model of 124 M parameters takes half a minute to its end, and once more after the kill.
SECONDS, END_SECONDS = 600.0, 240.0


def check(machine: Machine) -> Seen:
    """Raises RowFailedError where the job does not come to its end, or its GPU is not told."""
    require_packages()
    from scripts.faults.gang import running  # which imports them
    from scripts.faults.rig import rig

    spec = spec_of(machine)
    steps, every = spec["training"]["steps"], spec["checkpoint"]["every_steps"]
    with rig(1) as ours, running(ours.client, ours.layout, spec) as gang:
        victim = gang.victim(0, 2 * every + every // 2)
        cards = parsed(ours.client.get("/cluster/gpu-status"), GpuStatus)
        ours.strike("rank_killed", victim)
        job = gang.ended(END_SECONDS)
        incidents = [parsed(each, Incident) for each in ours.client.get(f"/training/jobs/{gang.job_id}/incidents")]
        performance = parsed(ours.client.get(f"/training/jobs/{gang.job_id}/performance"), Performance)
    require_well(machine, job, incidents, cards, steps)
    return seen(job, incidents[0], performance)


def require_packages() -> None:
    """Raises RowSkippedError where one of `PACKAGES` is missing."""
    if missing := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        raise RowSkippedError(f"a coordinator needs {', '.join(missing)}: pip install -r requirements.txt")


def spec_of(machine: Machine) -> dict[str, Any]:
    steps = QUICK_STEPS if machine.quick else STEPS
    tiny = {"layers": 2, "heads": 2, "dim": 32, "context": 16}
    return {
        "name": "gpu-check",
        "resources": {"nodes": 1, "device": machine.device},
        "model": {"kind": "gpt", **(tiny if machine.quick else {"preset": "gpt-124m"})},
        "data": {"kind": "stdlib_text"},
        "precision": "fp32" if machine.device == "cpu" else "bf16",
        "training": {"steps": steps, "global_batch_size": 8, "micro_batch_size": 8, "eval_every_steps": None},
        "checkpoint": {"every_steps": steps // 5},
        "reproducible": False,
    }


def require_well(machine: Machine, job: Job, incidents: list[Incident], cards: GpuStatus, steps: int) -> None:
    if job.state != "completed" or job.progress.step != steps:
        raise RowFailedError(f"the job {job.state} at step {job.progress.step} of {steps}: {job.failure or job.end_reason}")
    if [each.outcome for each in incidents] != ["recovered"]:
        raise RowFailedError(f"one fault was to be recovered from: {incidents}")
    if machine.device == "cuda" and [card.rank for card in cards.gpus if card.job_id == job.id] != [0]:
        raise RowFailedError(f"one GPU was to be told as the one of rank 0: {cards.gpus}")


def seen(job: Job, fault: Incident, performance: Performance) -> Seen:
    first = min(each.first_step_at for each in job.generations if each.first_step_at is not None)
    started = (first - job.created_at).total_seconds()
    outage, rate = fault.outage_seconds or 0.0, performance.tokens_per_second or 0.0
    mfu = performance.mfu.value
    share = "" if mfu is None else f", MFU {mfu:.3f}"
    text = (
        f"first step {started:.2f} s after submission, {rate:,.0f} tokens/s{share}; its rank killed at step {fault.step}: "
        f"training again after {outage:.2f} s, from step {fault.resumed_step}"
    )
    return Seen(text, {"first_step_seconds": started, "tokens_per_second": rate, "outage_seconds": outage})
