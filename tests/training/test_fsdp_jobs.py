"""Sharded jobs as ranks live them: pause and resume, evaluation, a lost peer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.training.claims import assert_a_killed_rank_ends_the_others, assert_time_adds_up
from tests.training.conftest import MakeJob
from tests.training.specs import tiny_gpt

FSDP = {"parallelism": {"strategy": "fsdp"}}


def test_a_paused_job_goes_on_with_other_ranks(make_job: MakeJob) -> None:
    """And writes its sample text at the end, for which every rank lends its part of the parameters. At a rate of 0.01 rounding grows with the steps."""
    spec = tiny_gpt(2, steps=40, generate_tokens=5) | FSDP | {"optimizer": {"kind": "adamw", "lr": 1e-3}}
    straight = make_job(spec, "straight").run(2)[0]
    job = make_job(spec)
    paused, ended = job.run(2, pause=True), job.resume(3)
    assert [end.result.outcome for end in (*paused, *ended) if end.result] == ["paused"] * 2 + ["completed"] * 3
    for name in ("loss", "gradient_norm", "eval_loss"):
        curve: dict[int, Any] = paused[0].curve(name) | ended[0].curve(name)
        assert curve == pytest.approx(straight.curve(name), rel=1e-5)
    assert [event["text"][:4] for event in ended[0].events_of("sample")] == ["def "]
    assert not ended[1].events


def test_a_killed_rank_ends_the_others_at_once(make_job: MakeJob) -> None:
    assert_a_killed_rank_ends_the_others(make_job(tiny_gpt(3, steps=100_000) | FSDP), 3, killed=2)


def test_where_the_time_goes_adds_up_and_includes_waiting_within_passes(make_job: MakeJob) -> None:
    exposed = assert_time_adds_up(make_job(tiny_gpt(2, steps=20) | FSDP).run(2)[1])
    assert min(exposed.values()) > 0
