"""Which state is the truth, who sends it to whom, and that it arrives to the last bit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest
import torch
from torch import nn

from paceline.distributed import env
from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.parallelism.plan import Coordinates, Degrees, StateShard
from paceline.parallelism.tree import TreeNode
from paceline.training import elastic
from paceline.training.elastic import RankStateSummary, StateTransfer, agree
from paceline.training.link import RankPlace
from paceline.training.optim.loss_guard import LossGuard
from paceline.training.optim.loss_scale import LossScale
from paceline.training.saving.shards import put_tensors, tensors_of
from paceline.training.spec.job import JobSpec
from paceline.training.state import StepReport, TrainState, new_state
from paceline.training.state_handoff import held_shards, restore_shards
from tests.ranks import run_ranks
from tests.training.specs import tiny_gpt


def report(step: int, time: float = 0.0) -> StepReport:
    return StepReport(
        step=step,
        loss=1 / step,
        gradient_norm=1.0,
        learning_rate=0.1,
        first_sample=12 * (step - 1),
        samples=12,
        seconds=0.1,
        parts={},
        pause=False,
        checkpoint=False,
        leave=False,
        time=time or step,
    )


def at(
    step: int,
    *,
    started: bool = True,
    was_leader: bool = False,
    pending_step: StepReport | None = None,
    computed_nodes: tuple[TreeNode, ...] = (),
) -> RankStateSummary:
    return RankStateSummary(
        started,
        step,
        None,
        LossScale(2.0**step),
        LossGuard(skipped_updates=step),
        pending_step,
        tuple(report(each) for each in range(1, step + 1)),
        was_leader,
        computed_nodes,
    )


def test_where_nobody_has_begun_there_is_nothing_to_agree_on() -> None:
    assert agree([at(0, started=False), at(0, started=False)]) is None


@pytest.mark.parametrize(
    ("summaries", "step", "transfers"),
    [
        ([at(7), at(7)], 7, ()),
        ([at(7), at(8)], 8, (StateTransfer(1, 0),)),
        ([at(7), at(8), at(7), at(8)], 8, (StateTransfer(1, 0), StateTransfer(3, 2))),  # shared out over who has it
        ([at(0, started=False), at(3)], 3, (StateTransfer(1, 0),)),
        ([at(9, started=False), at(3)], 3, (StateTransfer(1, 0),)),  # what was not begun counts for nothing
        ([at(0, started=False), at(0)], 0, ()),  # built from the seed alone, with an optimizer that has seen nothing
    ],
)
def test_the_most_advanced_state_is_the_truth(summaries: list[RankStateSummary], step: int, transfers: tuple[StateTransfer, ...]) -> None:
    agreement = agree(summaries)
    assert agreement is not None
    assert (agreement.step, agreement.transfers) == (step, transfers)
    assert (agreement.scale, agreement.guard) == (LossScale(2.0**step), LossGuard(skipped_updates=step))


A: StateShard = (("shard", 0, 2),)
B: StateShard = (("shard", 1, 2),)
NEW = at(0, started=False)


@pytest.mark.parametrize(
    ("first", "others", "second", "step"),
    [
        (at(1), at(0), NEW, None),  # nobody has the first part at step 0 any more, nor the second one at step 1
        (at(1), at(0), at(0), None),
        (at(0), at(0), NEW, 0),
        (at(7), at(6), NEW, None),
        (at(7), at(6), at(6), 6),  # the first rank gets it from the second
        (at(6), at(6), NEW, 6),
    ],
)
def test_where_a_part_has_committed_a_step_that_the_other_has_not_all_go_back(
    first: RankStateSummary, others: RankStateSummary, second: RankStateSummary, step: int | None
) -> None:
    """Two replicas of two parts; of the first part there are `first` and `second`."""
    agreement = agree([replace(first, part=A), replace(others, part=B), replace(second, part=A), replace(others, part=B)], [A, B, A, B])
    assert (agreement.step if agreement else None) == step


PAIR, LAST = (TreeNode(1, 0),), (TreeNode(0, 3),)


@pytest.mark.parametrize(
    ("summaries", "computed_nodes", "shares"),
    [
        ([at(7, computed_nodes=PAIR), at(7, computed_nodes=LAST)], (PAIR, LAST), ((0, 1), (2, 3))),  # to the one with less
        ([at(7, computed_nodes=PAIR), at(7), at(0, started=False)], (PAIR, (), ()), ((0, 1), (2,), (3,))),
        ([at(7, computed_nodes=PAIR), at(8), at(8)], ((), (), ()), ((0, 1), (2,), (3,))),  # that step is committed
        ([at(7, computed_nodes=PAIR), at(7, computed_nodes=(TreeNode(0, 1),))], (PAIR, ()), ((0, 1, 2), (3,))),
        ([at(7, computed_nodes=PAIR), at(9, started=False, computed_nodes=LAST)], (PAIR, ()), ((0, 1, 2), (3,))),
    ],
)
def test_what_is_computed_of_the_next_step_stays_where_it_is(
    summaries: list[RankStateSummary], computed_nodes: tuple[tuple[TreeNode, ...], ...], shares: tuple[tuple[int, ...], ...]
) -> None:
    agreement = agree(summaries)
    assert agreement is not None
    assert agreement.computed_nodes == computed_nodes
    deals = [elastic.first_assignment(4, Coordinates(Degrees(replicate=len(summaries)), rank), agreement) for rank in range(len(summaries))]
    assert {assignment.shares for assignment in deals} == {shares}
    assert [assignment.own for assignment in deals] == list(shares)


def test_a_partial_step_is_dropped_with_what_is_not_wanted_of_it() -> None:
    state = new_state(JobSpec.model_validate(tiny_gpt()), torch.device("cpu"), env.cache_directory())
    partial = state.begin_step()
    for node in (TreeNode(1, 0), TreeNode(0, 3)):
        partial.sums[node] = [torch.zeros(1)]
    partial.losses.update({0: torch.tensor(0.0), 1: torch.tensor(1.0), 3: torch.tensor(3.0)})
    state.rewind()
    assert elastic.summarize_state(state, was_leader=False).computed_nodes == (TreeNode(1, 0), TreeNode(0, 3))
    state.keep_partial(0, [TreeNode(1, 0)])
    again = state.begin_step()
    assert (again.step, list(again.sums), list(again.losses)) == (1, [TreeNode(1, 0)], [0, 1])
    state.keep_partial(1, [TreeNode(1, 0)])  # the agreed state is a step further
    assert state.partial is None
    state.begin_step()
    state.commit(report(1), LossGuard())
    assert state.partial is None


def test_a_save_that_broke_off_on_one_rank_is_done_again_by_all() -> None:
    agreement = agree([at(5), at(5, pending_step=report(5))])
    assert agreement is not None
    assert agreement.pending_step == report(5)


@pytest.mark.parametrize(
    ("summaries", "unreported"),
    [
        ([at(5, was_leader=True), at(5)], []),
        ([at(4, was_leader=True), at(5)], [5]),  # it was behind, and gets a step that it never wrote down
        ([at(9), at(9)], [5, 6, 7, 8, 9]),  # the leader is gone; reports are a second apart
    ],
)
def test_a_successor_tells_what_the_leader_may_not_have(summaries: list[RankStateSummary], unreported: list[int]) -> None:
    agreement = agree(summaries)
    assert agreement is not None
    assert [each.step for each in agreement.unreported] == unreported


def steps(state: TrainState, count: int) -> None:
    """Some made-up ones, the same on every rank."""
    for number in range(count):
        for parameter in state.task.model.parameters():
            parameter.grad = torch.full_like(parameter, 0.1 * (number + 1))
        state.optimizer.step()
        state.optimizer.zero_grad()
        state.commit(report(state.step + 1), LossGuard())
    state.started = True


def recover(world: RankPlace) -> tuple[int, dict[str, bytes]]:
    """Rank 0 is fresh, 1 a step behind, 2 ahead."""
    state = new_state(JobSpec.model_validate(tiny_gpt(world.world_size, global_batch_size=12)), torch.device("cpu"), env.cache_directory())
    if world.rank > 0:
        steps(state, 1 + world.rank)
    group = join(world, GroupAborter())
    agreement = agree(group.all_gather_object(elastic.summarize_state(state, was_leader=False)))
    assert agreement is not None
    elastic.apply_agreement(state, group, agreement)
    tensors = tensors_of(state)
    everything = {f"{part}.{name}": value for part in tensors for name, value in tensors[part].items() if isinstance(value, torch.Tensor)}
    return state.step, {name: value.numpy().tobytes() for name, value in everything.items()}


def test_whoever_is_behind_gets_parameters_and_optimizer_to_the_last_bit() -> None:
    (first, fresh), (second, behind), (third, ahead) = run_ranks(recover, 3)
    assert (first, second, third) == (3, 3, 3)
    assert any("exp_avg" in name for name in ahead)
    assert fresh.keys() == behind.keys() == ahead.keys()
    for name, value in ahead.items():
        assert fresh[name] == value, name
        assert behind[name] == value, name


class Slowing(torch.optim.Optimizer):
    """Its updates become smaller by Python numbers that it keeps of each parameter and of each group."""

    def __init__(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": 0.1, "updates": 0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            group["updates"] += 1
            for parameter in group["params"]:
                kept = self.state[parameter]
                kept["step"] = kept.get("step", 0) + 1
                parameter.sub_(parameter.grad * group["lr"] / (kept["step"] + group["updates"]))


def slowing() -> TrainState:
    state = new_state(JobSpec.model_validate(tiny_gpt()), torch.device("cpu"), env.cache_directory())
    state.set_optimizer(Slowing(state.model.parameters()))
    return state


def train_beside_a_newcomer(world: RankPlace) -> bytes:
    state = slowing()
    if world.rank > 0:
        steps(state, 5)
    group = join(world, GroupAborter())
    agreement = agree(group.all_gather_object(elastic.summarize_state(state, was_leader=False)))
    assert agreement is not None
    elastic.apply_agreement(state, group, agreement)
    steps(state, 2)
    group.barrier_and_leave()
    return b"".join(parameter.detach().numpy().tobytes() for parameter in state.model.parameters())


def test_an_optimizer_that_counts_in_python_numbers_updates_a_newcomer_as_the_others() -> None:
    newcomer, survivor = run_ranks(train_beside_a_newcomer, 2)
    assert newcomer == survivor


class PartlyUsed(nn.Module):
    """`b` is never used. Its name is between two that are."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.c = nn.Linear(2, 3), nn.Linear(3, 3), nn.Linear(3, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return cast("torch.Tensor", self.c(self.a(inputs).tanh()))


@dataclass
class Training:
    model: nn.Module
    optimizer: torch.optim.Optimizer


def send_to_a_newcomer(world: RankPlace) -> dict[str, Any]:
    model = PartlyUsed()
    training = Training(model, torch.optim.AdamW(model.parameters(), lr=0.1))
    for _ in range(3 if world.rank else 0):
        training.optimizer.zero_grad()
        model(torch.ones(4, 2)).sum().backward()
        training.optimizer.step()
    group, tensors = join(world, GroupAborter()), tensors_of(training)
    elastic.exchange(tensors, group, [StateTransfer(1, 0)])
    if world.rank == 0:
        put_tensors(training, tensors)
    group.barrier_and_leave()
    names: dict[torch.Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    kept = training.optimizer.state.items()
    return {names[parameter]: {key: value.tolist() for key, value in values.items()} for parameter, values in kept}


def test_a_newcomers_optimizer_keeps_of_each_parameter_what_the_others_keep() -> None:
    """Of one that is never used they keep nothing, and a new optimizer does: all values behind its name went to others."""
    newcomer, survivor = run_ranks(send_to_a_newcomer, 2)
    assert newcomer == survivor
    assert survivor.keys() == {"a.weight", "a.bias", "c.weight", "c.bias"}


def test_a_part_that_waits_on_the_host_keeps_python_numbers_of_its_optimizer() -> None:
    state, rebuilt = slowing(), slowing()
    steps(state, 5)
    held, tensors = held_shards(state, ()), tensors_of(rebuilt)
    assert held is not None
    restore_shards(held, tensors)
    put_tensors(rebuilt, tensors)
    assert {kept["step"] for kept in rebuilt.optimizer.state.values()} == {5}
    assert rebuilt.optimizer.param_groups[0]["updates"] == 5


class CutOff:
    """A group of two whose other rank sends what it has of one data type, and is lost before the next one."""

    rank, messages = 0, 0

    def all_gather_object(self, _: Any) -> list[Any]:
        return [None, ({}, (), frozenset())]

    def receive(self, tensor: torch.Tensor, source: int) -> None:
        if self.messages:
            raise RuntimeError(f"Connection closed by peer {source}")
        self.messages += 1
        tensor.fill_(7.0)


def test_a_rank_whose_source_is_lost_between_two_data_types_keeps_its_own_step_whole() -> None:
    group: Any = CutOff()
    parameters = {"a": torch.ones(2), "b": torch.ones(2, dtype=torch.bfloat16)}
    with pytest.raises(RuntimeError, match="closed by peer 1"):
        elastic.exchange({"model": parameters, "optimizer": {}}, group, [StateTransfer(1, 0)])
    assert group.messages == 1
    assert [part.tolist() for part in parameters.values()] == [[1.0, 1.0], [1.0, 1.0]]
