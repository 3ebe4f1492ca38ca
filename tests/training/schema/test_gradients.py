"""Which steps the `gradients` section chooses, and what it refuses in words."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from paceline.cluster.experiments.cells import given
from paceline.training.schema.gradients import Gradients
from paceline.training.spec.job import JobSpec
from paceline.training.spec.refusals import told
from tests.training.specs import tiny_gpt


def test_named_steps_and_every_so_many_are_chosen_together() -> None:
    section = Gradients(steps=(1, 10, 50), every=5)
    assert [step for step in range(1, 21) if section.includes(step)] == [1, 5, 10, 15, 20]
    assert section.count(20) == 5
    assert section.count(100) == 21
    assert Gradients(steps=(3, 3, 9)).count(5) == 1


@pytest.mark.parametrize(
    ("gradients", "words"),
    [
        ({}, "gradients records no step: give steps, such as [100, 200], or every"),
        ({"every": 0}, "gradients.every must be 1 or more; got 0"),
        ({"steps": 5}, "gradients.steps takes a list, such as [100, 200]; got 5"),
        ({"steps": [1], "names": []}, "gradients.names takes at least 1 entry; got 0"),
        ({"steps": [1], "names": "*.weight"}, "gradients.names takes a list, such as ['*.weight']; got '*.weight'"),
        ({"steps": [1], "bins": 63}, "gradients.bins=63 is odd, and half of the bins are for negative numbers; use 64"),
        ({"steps": [1], "bins": 2048}, "gradients.bins must be 1024 or less; got 2048"),
        (
            {"steps": [2000, 5000]},
            "gradients begins with step 2,000, and the job ends after 1,200: choose a step up to that, or train longer",
        ),
        ({"every": 1300}, "gradients begins with step 1,300, and the job ends after 1,200"),
        ({"every": 1}, "gradients chooses 1,200 of 1,200 steps; at most 1,000 are recorded: use every=2 or more"),
        ({"every": 50, "snapshots": True}, "24 of 1,200 steps; at most 20 are kept as snapshots: use every=60 or more"),
        ({"steps": list(range(1, 22)), "snapshots": True}, "at most 20 are kept as snapshots: name fewer steps"),
    ],
)
def test_what_cannot_be_recorded_is_refused(gradients: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        JobSpec.model_validate(tiny_gpt(steps=1200) | {"gradients": gradients})
    assert words in told(caught.value, 3)


def test_a_script_is_sent_to_the_function() -> None:
    with pytest.raises(ValidationError, match=r"look at them in its own loop with paceline\.intercept_gradients"):
        JobSpec.model_validate({"name": "x", "script": {"path": "x.py"}, "gradients": {"every": 5}})


def test_a_job_without_it_has_the_document_that_it_always_had() -> None:
    """Nodes of the version before take it, and trials of experiments keep their keys."""
    spec = JobSpec.model_validate(tiny_gpt())
    assert "gradients" not in spec.model_dump(mode="json")
    assert "gradients" not in given(spec)
    asking = JobSpec.model_validate(tiny_gpt() | {"gradients": {"every": 5}})
    assert JobSpec.model_validate(asking.model_dump(mode="json")) == asking
