"""What ranks that leave have not sent is not lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.training.link import Joined, RankPlace
from paceline.training.unsent_inheritance import inherited, with_inherited
from tests.ranks import run_ranks
from tests.training.conftest import MakeJob
from tests.training.specs import tiny_gpt

ELEMENTS = {"a": 5, "b": 3}


def unsent_of(rank: int) -> dict[str, torch.Tensor]:
    """Rank 2 keeps nothing of b: in a hierarchy each keeps its segments only."""
    return {name: torch.full((count,), float(10**rank)) for name, count in ELEMENTS.items() if (rank, name) != (2, "b")}


def handed_over(world: RankPlace, leaving: tuple[int, ...]) -> dict[str, Any]:
    group = join(world, GroupAborter(), {"replicate": [list(range(world.world_size))]})
    unsent = {"residual": unsent_of(world.rank), "factor": {"a": torch.ones(2)}}
    after = with_inherited(unsent, inherited(group, unsent, leaves=world.rank in leaving))
    group.barrier_and_leave()
    return {name: part.numpy() for name, part in after["residual"].items()} | {"kinds": sorted(after)}


@pytest.mark.parametrize("leaving", [(1,), (0, 2), (2,), (), (0, 1, 2)])
def test_the_first_rank_that_stays_takes_over_what_others_have_not_sent(leaving: tuple[int, ...]) -> None:
    ends = run_ranks(handed_over, 3, leaving)
    assert all(end["kinds"] == ["factor", "residual"] for end in ends)
    staying = [rank for rank in range(3) if rank not in leaving]
    for name, count in ELEMENTS.items():
        all_of_it = sum((unsent_of(rank).get(name, torch.zeros(count)).numpy() for rank in range(3)), np.zeros(count, np.float32))
        kept = sum((ends[rank].get(name, np.zeros(count, np.float32)) for rank in staying or range(3)), np.zeros(count, np.float32))
        np.testing.assert_array_equal(kept, all_of_it)


#: Three replicas of two shards.
AXES = {"replicate": [[0, 2, 4], [1, 3, 5]], "shard": [[0, 1], [2, 3], [4, 5]]}


def shards_handed_over(world: RankPlace, leaving: tuple[int, ...]) -> dict[str, list[float]]:
    group = join(world, GroupAborter(), AXES)
    unsent = {"residual": {f"w@{world.rank % 2}/2": torch.full((3,), float(10**world.rank))}}
    found = inherited(group, unsent, leaves=world.rank in leaving)
    group.barrier_and_leave()
    return {name: part.tolist() for name, part in found.items()}


@pytest.mark.parametrize(
    ("leaving", "heirs"),
    [
        ((4, 5), {0: {"w@0/2": [1e4] * 3}, 1: {"w@1/2": [1e5] * 3}}),
        ((0, 4), {2: {"w@0/2": [10001.0] * 3}}),
        ((0, 1, 2, 4), {3: {"w@1/2": [10.0] * 3}}),  # none stays of the first shard
    ],
)
def test_what_a_rank_has_not_sent_goes_to_one_with_the_same_shard(leaving: tuple[int, ...], heirs: dict[int, Any]) -> None:
    """Nobody took it over, and the checkpoint that has it is not read where those that stay have all shards."""
    assert run_ranks(shards_handed_over, 6, leaving) == [heirs.get(rank, {}) for rank in range(6)]


@pytest.mark.timeout(200)
def test_a_job_gives_a_rank_up_and_goes_on(make_job: MakeJob, tmp_path: Path) -> None:
    communication = {"compression": "top_k", "ratio": 0.05, "dense_steps": 2}
    gang = make_job(tiny_gpt(3, steps=400) | {"communication": communication}).start(3)
    gang.agent.until(1, 0, Joined)
    gang.resize(0, 2)
    gang.release(1)
    ends = gang.wait()
    assert [end.exit_code for end in ends] == [0, 0, 0], ends[0].output
    assert any("leaving generation 1" in end.output for end in ends)
