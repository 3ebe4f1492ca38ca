"""What compressed sums have left out is not lost while a job has one replica, which sums nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.distributed.reduction import ReductionState
from paceline.training.gradient_sums import gradient_sums
from paceline.training.link import RankPlace
from paceline.training.saving import unsent
from paceline.training.spec.job import JobSpec
from tests.ranks import run_ranks
from tests.training.specs import tiny_gpt


def left_out() -> ReductionState:
    return {"residual": {"w": torch.tensor([1.0, -2.0, 3.0])}, "factor": {"w": torch.ones(2)}}


def alone(world: RankPlace, communication: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Three steps of a world of one, and a save; what it would give to a world of two, in memory and by its checkpoint."""
    group = join(world, GroupAborter(), {})
    spec, nothing = JobSpec.model_validate(tiny_gpt(1) | {"communication": communication}), None
    reducer = gradient_sums(spec, world, nothing, group).reducer  # type: ignore[arg-type]
    reducer.load_state(left_out())
    for _ in range(3):
        reducer.commit()
    unsent.write(folder, 0, reducer.state())
    group.barrier_and_leave()
    handed = [unsent.with_newcomers(reducer.state(), {1}), *(unsent.read(folder, rank, 2) for rank in (0, 1))]
    return {str(number): each["residual"]["w"].tolist() if each["residual"] else [] for number, each in enumerate(handed)}


@pytest.mark.parametrize(
    "communication",
    [{"compression": "top_k", "ratio": 0.05}, {"compression": "power_sgd"}, {"algorithm": "auto", "compression": "auto"}],
    ids=["top_k", "power_sgd", "auto"],
)
def test_what_was_left_out_waits_while_a_job_has_one_replica_and_is_added_once_it_has_several(
    communication: dict[str, Any], tmp_path: Path
) -> None:
    (given,) = run_ranks(alone, 1, communication, tmp_path)
    whole = left_out()["residual"]["w"].tolist()
    assert given == {"0": whole, "1": whole, "2": []}, "the one that stays keeps it, and of its checkpoint one rank takes it, once"
