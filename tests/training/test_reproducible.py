"""Same run, to the last bit: hashes of everything a job reports and saves, over worlds, pauses and resizes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.gangs import Job, RankEnd
from tests.release_only import AT_LENGTH
from tests.training.conftest import MakeJob
from tests.training.specs import tiny_gpt, tiny_resnet, write_batches
from tests.training.states import final_state

CURVES = ("loss", "gradient_norm", "learning_rate", "eval_loss", "eval_accuracy", "loss_scale", "skipped_updates")
STEPS = 12


def uneven_gpt(steps: int = STEPS) -> dict[str, Any]:
    """Six micro-batches, the last one smaller; three evaluation batches, the last one smaller; dropout; clipping at every step."""
    return tiny_gpt(steps=steps, global_batch_size=11, micro_batch_size=2, eval_samples=5, gradient_clip_norm=0.5)


def digest(job: Job, leaders: Sequence[RankEnd]) -> str:
    """Of every reported number and of the saved model; `leaders` are rank 0 of each generation."""
    found = hashlib.sha256()
    for name in CURVES:
        points = [(step, value.hex()) for end in leaders for step, value in end.curve(name).items()]
        found.update(repr((name, points)).encode())
    for name, tensor in sorted(final_state(job).items()):
        found.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return found.hexdigest()


def run(job: Job, world_size: int) -> str:
    ends = job.run(world_size)
    assert [end.exit_code for end in ends] == [0] * world_size, ends[0].output
    return digest(job, [ends[0]])


def test_one_to_five_ranks_give_the_same_bits(make_job: MakeJob) -> None:
    digests = {run(make_job(uneven_gpt(), f"world{size}"), size) for size in ((1, 2, 3, 4, 5) if AT_LENGTH else (1, 3))}
    assert len(digests) == 1


PLANS: dict[str, dict[str, Any]] = {
    "shards": {"strategy": "fsdp", "shard": 2},
    "blocks kept whole": {"strategy": "fsdp", "shard": 2, "reshard_after_forward": False},
    "stages": {"pipeline": 2},
    "interleaved stages": {"pipeline": 2, "pipeline_schedule": "interleaved_1f1b"},
    "split backward": {"pipeline": 2, "pipeline_schedule": "zero_bubble_v"},
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_any_number_of_replicas_in_parts_do(make_job: MakeJob, plan: dict[str, Any]) -> None:
    """Three of them have shares of two micro-batches or, in shards, one pass each."""
    spec = uneven_gpt() | {"parallelism": plan, "reproducible": True, "resources": {"nodes": 2}}
    spec["model"] |= {"layers": 4}
    digests = {run(make_job(spec, f"world{size}"), size) for size in ((2, 4, 6) if AT_LENGTH else (2, 6))}
    assert len(digests) == 1


@pytest.mark.parametrize("plan", ["shards", "stages"])
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_replicas_in_parts_do_with_running_statistics(make_job: MakeJob, tmp_path: Path, plan: str, precision: str) -> None:
    write_batches(tmp_path)
    spec = tiny_resnet(tmp_path, precision=precision, parallelism=PLANS[plan], reproducible=True, resources={"nodes": 2})
    digests = {run(make_job(spec, f"world{size}"), size) for size in (2, 4)}
    assert len(digests) == 1


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_batch_norm_augmentation_and_half_precision_do_too(make_job: MakeJob, tmp_path: Path, precision: str) -> None:
    write_batches(tmp_path)
    spec = tiny_resnet(tmp_path, precision=precision)
    digests = {run(make_job(spec, f"world{size}"), size) for size in (1, 2, 3)}
    assert len(digests) == 1


def test_pauses_onto_other_worlds_do_not_show(make_job: MakeJob) -> None:
    spec = uneven_gpt(steps=60)  # long enough that both pauses come before the end
    straight, paused = make_job(spec, "straight"), make_job(spec, "paused")
    generations = [paused.run(3, pause=True), paused.resume(1, pause=True), paused.resume(2)]
    assert [ends[0].result.outcome for ends in generations if ends[0].result] == ["paused", "paused", "completed"]
    leaders = [ends[0] for ends in generations]
    assert run(straight, 1) == digest(paused, leaders)


def test_another_seed_gives_other_bits(make_job: MakeJob) -> None:
    """The hash above can tell runs apart."""
    other = uneven_gpt()
    other["training"]["seed"] = 1
    assert run(make_job(uneven_gpt(), "this"), 1) != run(make_job(other, "other"), 1)


def test_the_fast_mode_is_equal_to_rounding_over_fifty_steps(make_job: MakeJob) -> None:
    exact, fast = make_job(uneven_gpt(steps=50), "exact"), make_job(uneven_gpt(steps=50) | {"reproducible": False}, "fast")
    curves = [job.run(size)[0].curve("loss") for job, size in ((exact, 1), (fast, 2))]
    assert curves[1] == pytest.approx(curves[0], abs=1e-4)
