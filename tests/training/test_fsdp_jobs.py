"""Sharded jobs as ranks live them: pause and resume, evaluation, a lost peer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gangs import Job
from tests.training.conftest import MakeJob
from tests.training.specs import tiny_gpt
from training.link import Joined

FSDP = {"parallelism": {"strategy": "fsdp"}}


def test_a_paused_job_goes_on_with_other_ranks(make_job: MakeJob) -> None:
    """And writes its sample text at the end, for which every rank lends its part of the parameters."""
    spec = tiny_gpt(2, steps=40, generate_tokens=5) | FSDP
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
    """The gloo time-out is half an hour; the test's own is a minute."""
    job: Job = make_job(tiny_gpt(3, steps=100_000) | FSDP)
    gang = job.start(3)
    for rank in range(3):
        gang.until(rank, Joined)
    gang.kill(2)
    ends = gang.wait()
    failures = [end.result.failure for end in ends[:2] if end.result]
    assert [failure.kind for failure in failures if failure] == ["peer_lost", "peer_lost"]


def test_where_the_time_goes_adds_up_and_includes_waiting_within_passes(make_job: MakeJob) -> None:
    end = make_job(tiny_gpt(2, steps=20) | FSDP).run(2)[1]
    parts = ("data", "forward", "backward", "communication", "optimizer", "other")
    curves = [end.curve(f"{part}_seconds") for part in parts]
    for step, seconds in end.curve("step_seconds").items():
        assert sum(curve[step] for curve in curves) == pytest.approx(seconds, rel=1e-6)
        assert min(curve[step] for curve in curves) >= 0
    assert min(curves[3].values()) > 0
