"""The world a job runs on must not show in its numbers: plain DDP against one process, on the same global batches."""

from __future__ import annotations

import pytest
import torch

from tests.gangs import Job, RankEnd
from tests.training.claims import assert_time_adds_up
from tests.training.conftest import MakeJob
from tests.training.specs import tiny_gpt
from tests.training.states import final_state

TOLERANCE = 1e-6
#: A sum in another order now and then rounds a weight to its neighbour in bf16.
BF16_TOLERANCE = 1e-4


FAST = {"reproducible": False}


def assert_same_training(one: tuple[Job, RankEnd], other: tuple[Job, RankEnd], tolerance: float = TOLERANCE) -> None:
    for name in ("loss", "gradient_norm", "eval_loss", "learning_rate"):
        first, second = one[1].curve(name), other[1].curve(name)
        assert first.keys() == second.keys()
        assert len(first) > 1
        assert max(abs(first[step] - second[step]) for step in first) < tolerance, name
    mine, theirs = final_state(one[0]), final_state(other[0])
    assert mine.keys() == theirs.keys()
    for name in mine:
        torch.testing.assert_close(mine[name], theirs[name], atol=tolerance * 10, rtol=0)  # AdamW divides by small numbers


@pytest.mark.parametrize("world_size", [2, 4])
def test_ddp_trains_as_one_process_does(make_job: MakeJob, world_size: int) -> None:
    alone, together = make_job(tiny_gpt() | FAST, "alone"), make_job(tiny_gpt(world_size) | FAST, "together")
    ends = together.run(world_size)
    assert [end.exit_code for end in ends] == [0] * world_size, ends[0].output
    assert_same_training((alone, alone.run()[0]), (together, ends[0]))


def test_bf16_and_sgd_ddp_train_as_one_process_does(make_job: MakeJob) -> None:
    changes = FAST | {"precision": "bf16", "optimizer": {"kind": "sgd", "lr": 0.1, "nesterov": True}}
    alone, together = make_job(tiny_gpt() | changes, "alone"), make_job(tiny_gpt(2) | changes, "together")
    assert_same_training((alone, alone.run()[0]), (together, together.run(2)[0]), BF16_TOLERANCE)


def test_the_time_parts_add_up(make_job: MakeJob) -> None:
    exposed = assert_time_adds_up(make_job(tiny_gpt(2, steps=40) | FAST).run(2)[1])
    assert sum(exposed.values()) > 0  # two ranks do talk


def test_only_rank_zero_speaks_for_the_job(make_job: MakeJob) -> None:
    first, second = make_job(tiny_gpt(2)).run(2)
    assert first.curve("loss")[12] < first.curve("loss")[1]
    assert not second.curve("loss")
    assert not second.events
    assert [record.seq for record in second.metrics] == list(range(1, 13))
