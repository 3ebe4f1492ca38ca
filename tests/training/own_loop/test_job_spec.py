"""What `production_train.py --config` does with each field of a job spec: nothing is dropped in silence."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.training.own_loop.job_spec import FOLLOWED, LEFT_TO_JOBS, NAMES, REFUSED, asked_for, refusals, told
from paceline.training.spec.job import JobSpec

SMALL: dict[str, Any] = {"name": "small", "model": {"kind": "mlp"}, "data": {"kind": "digits"}, "training": {"steps": 12}}
SECTIONS = ("parallelism", "training", "checkpoint", "fault_tolerance")


def spec(**sections: Any) -> JobSpec:
    return JobSpec.model_validate(SMALL | sections)


def test_every_field_of_a_spec_is_followed_told_of_or_refused() -> None:
    """A new field fails here until its place in a list is chosen."""
    lists = [FOLLOWED, NAMES, frozenset(LEFT_TO_JOBS), frozenset(REFUSED)]
    named = [name for each in lists for name in each]
    assert sorted(named) == sorted(set(named)), "in two lists"
    fields = {name for name in JobSpec.model_fields if name not in SECTIONS}
    for section in SECTIONS:
        annotation = JobSpec.model_fields[section].annotation
        part = next(each for each in (annotation, *getattr(annotation, "__args__", ())) if hasattr(each, "model_fields"))
        fields |= {f"{section}.{name}" for name in part.model_fields}
    assert set(named) == fields


def test_a_spec_that_asks_for_nothing_else_is_followed_in_silence() -> None:
    assert (refusals(spec()), told(spec())) == ([], [])
    assert asked_for(spec()) == {"name", "model", "data", "training.steps"}
    bad_losses = spec(fault_tolerance={"on_nan": "skip_update", "on_spike": "stop"})
    assert (refusals(bad_losses), told(bad_losses)) == ([], [])


@pytest.mark.parametrize(
    ("sections", "problem"),
    [
        ({"communication": {"compression": "top_k"}}, "communication of the spec is for jobs: submit it, or leave it out: gradients are"),
        ({"reproducible": True}, "reproducible of the spec is for jobs"),
        ({"gradients": {"every": 10}}, "gradients of the spec is for jobs"),
        ({"compile": True}, "compile of the spec is for jobs"),
        ({"training": {"steps": 12, "pause_at_steps": [5]}}, "training.pause_at_steps of the spec is for jobs"),
    ],
)
def test_what_would_make_another_run_is_refused(sections: dict[str, Any], problem: str) -> None:
    (found,) = refusals(spec(**sections))
    assert found.startswith(problem)


def test_what_asks_for_nothing_is_not_refused() -> None:
    assert refusals(spec(reproducible=False, communication={"compression": "none"})) == []


def test_what_is_left_to_the_launcher_is_told_of() -> None:
    asked = spec(
        resources={"nodes": 2}, training={"steps": 12, "data_workers": 2, "micro_batch_size": "auto"}, checkpoint={"directory": "/ck"}
    )
    assert told(asked) == [
        "resources (the launcher starts the ranks)",
        "checkpoint.directory (--checkpoint-dir says where)",
        "training.data_workers (batches are made between the steps)",
        "training.micro_batch_size=auto (--auto-batch-size finds the largest)",
    ]
