"""Tied parameters are saved, sent and hashed once; untied ones are two, everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader

from paceline.training.models.catalog import parameter_count
from paceline.training.saving import shards
from paceline.training.spec.job import JobSpec
from paceline.training.state import TrainState, new_state
from tests.training.conftest import MakeJob
from tests.training.specs import tiny_gpt


def gpt_spec(*, tied: bool, **training: Any) -> dict[str, Any]:
    spec = tiny_gpt(**training)
    return spec | {"model": spec["model"] | {"tied_embeddings": tied}}


def fresh(folder: Path, *, tied: bool, seed: int = 0) -> TrainState:
    return new_state(JobSpec.model_validate(gpt_spec(tied=tied, seed=seed)), torch.device("cpu"), folder)


@pytest.mark.parametrize("tied", [True, False])
def test_each_parameter_is_there_once(tmp_path: Path, tied: bool) -> None:
    state = fresh(tmp_path, tied=tied)
    model = shards.tensors_of(state)["model"]
    assert ("head.weight" in model) != tied
    spec = JobSpec.model_validate(gpt_spec(tied=tied))
    assert spec.model is not None
    assert sum(tensor.numel() for tensor in model.values()) == parameter_count(spec.model)


@pytest.mark.parametrize("tied", [True, False])
def test_put_back_they_are_as_tied_as_before(tmp_path: Path, tied: bool) -> None:
    source, target = fresh(tmp_path, tied=tied), fresh(tmp_path, tied=tied, seed=1)
    shards.put_tensors(target, shards.tensors_of(source))
    model: Any = target.task.model
    assert (model.head.weight is model.embedding.weight) == tied
    for name, tensor in source.task.model.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name


@pytest.mark.parametrize("tied", [True, False])
def test_a_checkpoint_has_each_once_and_another_world_goes_on_from_it(make_job: MakeJob, tied: bool) -> None:
    job = make_job(gpt_spec(tied=tied) | {"checkpoint": {"every_steps": 6}})
    straight = job.run(2)[0]
    half = job.newest_first()[1]
    names = FileSystemReader(half).read_metadata().state_dict_metadata
    assert ("model.head.weight" in names) != tied
    assert ("optimizer.state.head.weight.exp_avg" in names) != tied
    (resumed,) = job.run(1, restore_from=(half,), restore_required=True)
    assert resumed.curve("loss") == {step: loss for step, loss in straight.curve("loss").items() if step > 6}
