"""Small jobs under each strategy and precision, whole lives of real ranks, beside the same job in one process in fp32."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.training.spec.job import JobSpec
from scripts.gpu_check.machine import Machine, RowSkippedError
from scripts.gpu_check.outcome import RowFailedError, Seen
from tests.gangs import Job, RankEnd

MODEL = {"kind": "gpt", "layers": 4, "heads": 4, "dim": 256, "context": 256}
TINY_MODEL = {"kind": "gpt", "layers": 2, "heads": 2, "dim": 32, "context": 16}
STEPS, QUICK_STEPS = 20, 3
BATCH = 8
#: Losses relative to those of one process in fp32: the same sums in another order; other kernels; numbers of 8 and of 11 bits.
ROUNDED, COMPILED, HALF = 1e-4, 1e-3, 2e-2
#: A first compilation takes its time.
TIMEOUT_SECONDS = 240.0


@dataclass(frozen=True)
class Plan:
    ranks: int = 1
    parallelism: Mapping[str, Any] = field(default_factory=lambda: {"strategy": "single"})
    changes: Mapping[str, Any] = field(default_factory=dict)  # to the spec
    bound: float = ROUNDED

    def spec(self, machine: Machine) -> dict[str, Any]:
        """Return the spec of this plan. Raises RowSkippedError where this version has no such jobs."""
        length = {"steps": QUICK_STEPS if machine.quick else STEPS, "global_batch_size": BATCH, "micro_batch_size": BATCH // 4}
        fields = {
            "name": "gpu-check",
            "resources": {"nodes": self.ranks},
            "model": TINY_MODEL if machine.quick else MODEL,
            "data": {"kind": "stdlib_text"},
            "parallelism": dict(self.parallelism),
            "training": length,
            "reproducible": False,
        }
        document = fields | dict(self.changes)
        if unknown := document.keys() - JobSpec.model_fields.keys():
            raise RowSkippedError(f"not in this version: a spec has no {', '.join(sorted(unknown))}")
        JobSpec.model_validate(document)
        return document


def plan(strategy: str, ranks: int = 1, **parallelism: Any) -> Plan:
    return Plan(ranks, {"strategy": strategy} | parallelism)


ALONE = plan("single")
PLANS = {
    "single": ALONE,
    "fsdp_of_one": plan("fsdp"),
    "checkpointing_selective": plan("single", activation_checkpointing="selective"),
    "checkpointing_full": plan("single", activation_checkpointing="full"),
    "bf16": Plan(changes={"precision": "bf16"}, bound=HALF),
    "fp16": Plan(changes={"precision": "fp16"}, bound=HALF),
    "compile": Plan(changes={"compile": True}, bound=COMPILED),
    "ddp": plan("ddp", 2),
    "ddp_reproducible": Plan(2, {"strategy": "ddp"}, {"reproducible": True}),
    "fsdp": plan("fsdp", 2),
    "fsdp_bf16": Plan(2, {"strategy": "fsdp"}, {"precision": "bf16"}, bound=HALF),
    "fsdp_offload": plan("fsdp", 2, cpu_offload=True),
    "hsdp": plan("fsdp", 4, replicate=2),
    "tensor": plan("ddp", 2, tensor=2),
    "context": plan("ddp", 2, context=2),
    "pipeline": plan("ddp", 2, pipeline=2),
    "zero_bubble_v": plan("ddp", 2, pipeline=2, pipeline_schedule="zero_bubble_v"),
}


#: Gradients that are compressed from the second step on.
LOSSY = {kind: {"compression": kind, "dense_steps": 1} for kind in ("top_k", "power_sgd")}


def check(which: Plan) -> Callable[[Machine], Seen]:
    return lambda machine: compare(which, machine)


def compare(which: Plan, machine: Machine) -> Seen:
    machine.require(which.ranks)
    spec = which.spec(machine)
    expected = run_to_end(ALONE.spec(machine), 1, machine)[0].curve("loss")
    ends = run_to_end(spec, which.ranks, machine)
    losses = ends[0].curve("loss")
    if losses.keys() != expected.keys():
        raise RowFailedError(f"{len(losses)} steps were recorded, {len(expected)} in one process")
    apart = max(abs(losses[step] - expected[step]) / expected[step] for step in expected)
    if not apart <= which.bound:
        raise RowFailedError(f"losses are {apart:.1e} apart from those of one process, more than {which.bound:g}: {losses}, {expected}")
    peak = max(max(end.curve("peak_memory_bytes").values()) for end in ends)
    first, *_, last = losses.values()
    text = f"loss {first:.3f} to {last:.3f} in {len(losses)} steps, {apart:.1e} apart from one process; at most {peak / 1e6:,.0f} MB a rank"
    return Seen(text, {"apart": apart, "peak_bytes": peak})


def check_resumed(communication: Mapping[str, Any]) -> Callable[[Machine], Seen]:
    return lambda machine: go_on_from_a_pause(communication, machine)


def go_on_from_a_pause(communication: Mapping[str, Any], machine: Machine) -> Seen:
    """Run a job that pauses: its ranks have what they have not sent on their GPUs before that, and from the checkpoint after it."""
    machine.require(2)
    spec = Plan(2, {"strategy": "ddp"}, {"communication": dict(communication)}).spec(machine)
    steps = spec["training"]["steps"]
    spec["training"] |= {"steps": 2 * steps, "pause_at_steps": [steps]}
    losses = run_to_end(spec, 2, machine, starts=2)[0].curve("loss")
    first, *_, last = losses.values()
    if list(losses) != list(range(steps + 1, 2 * steps + 1)) or not all(map(math.isfinite, losses.values())):
        raise RowFailedError(f"steps {steps + 1} to {2 * steps} were to follow the pause: {losses}")
    return Seen(f"paused after step {steps}; loss {first:.3f} to {last:.3f} in {len(losses)} more")


def run_to_end(spec: dict[str, Any], ranks: int, machine: Machine, *, starts: int = 1) -> list[RankEnd]:
    """Run a job from `training.main` to its last checkpoint. Of a job that pauses, and is started as often, return the last ends."""
    by_rank = {rank: {"slot": rank, "local_rank": rank} for rank in range(ranks)}
    ends: list[RankEnd] = []
    with tempfile.TemporaryDirectory() as folder:
        job = Job(Path(folder), spec)
        try:
            for _ in range(starts):
                saved = job.newest_first()
                gang = job.start(ranks, by_rank=by_rank, device=machine.device, restore_from=saved, restore_required=bool(saved))
                ends = gang.wait(TIMEOUT_SECONDS)
                require_well(ends)
        finally:
            job.end()
    return ends


def require_well(ends: Sequence[RankEnd]) -> None:
    for rank, end in enumerate(ends):
        if end.exit_code != 0 or end.result is None:
            told = end.result.failure.message if end.result and end.result.failure else end.output[-1000:]
            raise RowFailedError(f"rank {rank} ended with exit code {end.exit_code}: {told}")
