"""Batch norm needs more than one value per channel, which a micro-batch of one sample does not have at the end of a deep network."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from paceline.training.spec.job import JobSpec


def resnet(model: dict[str, Any], **training: Any) -> dict[str, Any]:
    return {
        "name": "resnet",
        "model": {"kind": "resnet"} | model,
        "data": {"kind": "digits"},
        "training": {"steps": 6, "global_batch_size": 8} | training,
    }


@pytest.mark.parametrize(
    ("training", "problem"),
    [
        ({}, "global_batch_size=8 in micro-batches of 1 has one of 1 sample, .*; set training.micro_batch_size=2$"),
        ({"global_batch_size": 9, "micro_batch_size": 4}, "micro-batches of 4 has one of 1 sample, .*; set training.micro_batch_size=5$"),
        ({"global_batch_size": 1}, "; use training.global_batch_size=2 or more$"),
    ],
)
def test_a_micro_batch_of_one_sample_does_not_fit_the_imagenet_form(training: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError) as refused:
        JobSpec.model_validate(resnet({"num_layers": 18}, **training))
    (error,) = refused.value.errors()
    assert re.search(problem, error["msg"])


@pytest.mark.parametrize("training", [{"micro_batch_size": 2}, {"global_batch_size": 32}, {"micro_batch_size": "auto"}])
def test_other_micro_batches_fit_it(training: dict[str, Any]) -> None:
    JobSpec.model_validate(resnet({"num_layers": 18}, **training))


def test_the_form_for_cifar_keeps_more_values_than_samples() -> None:
    JobSpec.model_validate(resnet({"depth": 20}, micro_batch_size=1))
