"""Which state a generation with parameter servers goes on from, and which parameters each rank's optimizer has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from paceline.parallelism.plan import Coordinates, with_servers
from paceline.parallelism.tree import TreeNode
from paceline.training.elastic import RankStateSummary, first_assignment
from paceline.training.optim.loss_guard import LossGuard
from paceline.training.optim.loss_scale import UNSCALED
from paceline.training.server_state import agree, restricted
from paceline.training.state import StepReport

STEP = 7
WORKER = RankStateSummary(
    started=True,
    step=STEP,
    best=None,
    scale=UNSCALED,
    guard=LossGuard(),
    pending_step=None,
    reports=(),
    was_leader=False,
    computed_nodes=(),
    generation=1,
)
FRESH = replace(WORKER, started=False, step=0, generation=0)


def server(number: int, servers: int, **changes: Any) -> RankStateSummary:
    return replace(WORKER, part=(("server", number, servers),), **changes)


def report(step: int) -> StepReport:
    return StepReport(step, 1.0, 1.0, 0.1, 0, 8, 0.1, {}, pause=False, checkpoint=False, leave=False, time=float(step))


def test_ranks_go_on_where_every_server_is_in_its_place_and_nothing_is_sent() -> None:
    agreement = agree([server(0, 2), server(1, 2), WORKER, FRESH], 2)
    assert agreement is not None
    assert (agreement.step, agreement.transfers, agreement.newcomers) == (STEP, (), (3,))


@pytest.mark.parametrize(
    "summaries",
    [
        [FRESH, server(1, 2), WORKER],  # the first is lost
        [server(0, 2), WORKER, WORKER],  # the second is
        [server(1, 2), server(0, 2), WORKER],  # both have changed places
        [server(0, 1), server(1, 2), WORKER],  # it was the only one
        [server(0, 2), server(1, 2, step=STEP - 1), WORKER],  # it broke off and has no sums
        [server(0, 2), server(1, 2, step=STEP - 1, updatable_step=STEP - 1), WORKER],
        [FRESH, FRESH, FRESH],
    ],
)
def test_without_every_servers_shard_all_go_back(summaries: list[RankStateSummary]) -> None:
    assert agree(summaries, 2) is None


def test_a_step_that_anyone_has_committed_is_the_truth_if_the_servers_can_finish_it() -> None:
    behind = {"step": STEP, "updatable_step": STEP + 1}
    ahead = replace(WORKER, step=STEP + 1, reports=(report(STEP + 1),))
    agreement = agree([server(0, 2, **behind), server(1, 2, **behind), WORKER, ahead], 2)
    assert agreement is not None
    assert (agreement.step, agreement.reports) == (STEP + 1, (report(STEP + 1),))


def test_sums_that_nobody_has_committed_are_not_applied() -> None:
    agreement = agree([server(0, 1, updatable_step=STEP + 1), WORKER], 1)
    assert agreement is not None
    assert agreement.step == STEP


def test_at_step_0_all_are_built_alike_whoever_serves() -> None:
    start = replace(WORKER, step=0)
    agreement = agree([start, server(0, 1, step=0), FRESH], 1)
    assert agreement is not None
    assert agreement.step == 0


def test_workers_keep_what_they_have_computed_and_servers_get_nothing() -> None:
    kept = replace(WORKER, computed_nodes=(TreeNode(1, 1),))
    agreement = agree([server(0, 1, computed_nodes=(TreeNode(0, 0),)), kept, WORKER], 1)
    assert agreement is not None
    assert agreement.computed_nodes == ((), (TreeNode(1, 1),), ())
    shares = first_assignment(6, Coordinates(with_servers(3, 1), rank=2), agreement).shares
    assert shares[0] == ()
    assert set(shares[1]) >= {2, 3}
    assert sorted(index for share in shares for index in share) == list(range(6))


def test_an_optimizer_keeps_its_groups_and_only_its_own_parameters() -> None:
    model = torch.nn.Linear(3, 2)
    groups = [{"params": [model.weight], "weight_decay": 0.1}, {"params": [model.bias], "weight_decay": 0.0}]
    optimizer = restricted(torch.optim.AdamW(groups, lr=0.5), {model.bias})
    assert [(group["params"], group["lr"]) for group in optimizer.param_groups] == [([], 0.5), ([model.bias], 0.5)]
    model.weight.grad, model.bias.grad = torch.ones(2, 3), torch.ones(2)
    before = model.weight.clone()
    optimizer.step()
    assert torch.equal(model.weight, before)
    assert set(optimizer.state) == {model.bias}
