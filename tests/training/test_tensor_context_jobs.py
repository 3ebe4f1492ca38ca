"""Jobs over a tensor and a context axis as ranks live them: pause and resume, evaluation, a sample text, a lost peer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.training.claims import assert_a_killed_rank_ends_the_others, assert_time_adds_up
from tests.training.conftest import MakeJob
from tests.training.specs import tiny_gpt

TENSOR: dict[str, Any] = {"strategy": "ddp", "tensor": 2}
CONTEXT: dict[str, Any] = {"strategy": "ddp", "context": 2}
SHARDED: dict[str, Any] = {"strategy": "fsdp", "tensor": 2}
STAGED: dict[str, Any] = {"pipeline": 2, "tensor": 2}
HYBRID: dict[str, Any] = {"strategy": "fsdp", "replicate": 2}


@pytest.mark.parametrize("plan", [TENSOR, SHARDED | {"context": 2}, STAGED])
def test_a_paused_job_goes_on_with_other_ranks(make_job: MakeJob, plan: dict[str, Any]) -> None:
    """Twice as many, and writes at the end what one process writes, though its texts have any length."""
    steps: dict[str, Any] = {"steps": 40, "generate_tokens": 5}
    alone = make_job(tiny_gpt(**steps) | {"reproducible": False}, "alone").run()[0]
    ranks = 2 if plan == TENSOR else 4
    job = make_job(tiny_gpt(ranks, **steps) | {"parallelism": plan})
    paused, ended = job.run(ranks, pause=True), job.resume(2 * ranks)
    assert [end.result.outcome for end in (*paused, *ended) if end.result] == ["paused"] * ranks + ["completed"] * 2 * ranks
    for name in ("loss", "gradient_norm", "eval_loss"):
        curve: dict[int, Any] = paused[0].curve(name) | ended[0].curve(name)
        assert curve == pytest.approx(alone.curve(name), rel=1e-4)
    assert [event["text"] for event in ended[0].events_of("sample")] == [event["text"] for event in alone.events_of("sample")]
    assert not ended[1].events


@pytest.mark.parametrize("plan", [TENSOR, CONTEXT, SHARDED, HYBRID, STAGED])
@pytest.mark.parametrize("killed", [0, 3])
def test_a_killed_rank_ends_the_others_at_once(make_job: MakeJob, plan: dict[str, Any], killed: int) -> None:
    """Its partners in a micro-batch as those that only wait for its sums."""
    assert_a_killed_rank_ends_the_others(make_job(tiny_gpt(4, steps=100_000) | {"parallelism": plan}), 4, killed)


@pytest.mark.parametrize("plan", [TENSOR, CONTEXT])
def test_where_the_time_goes_adds_up(make_job: MakeJob, plan: dict[str, Any]) -> None:
    exposed = assert_time_adds_up(make_job(tiny_gpt(2, steps=20) | {"parallelism": plan}).run(2)[1])
    assert min(exposed.values()) > 0
