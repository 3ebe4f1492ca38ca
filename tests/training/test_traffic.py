"""What the ranks of each strategy send in a step, beside what its algorithm says; and what their sockets have carried."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch

from paceline.distributed import env
from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.distributed.traffic import WORLD
from paceline.monitoring.points import SENT_METRICS
from paceline.parallelism import mesh
from paceline.parallelism.plan import AXES, Coordinates
from paceline.training.build import make_ready
from paceline.training.elastic import first_assignment
from paceline.training.link import RankPlace
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.state import building, new_state, rebuild_optimizer
from tests.parallelism.parity import NothingAsked
from tests.ranks import run_ranks
from tests.sockets import bytes_sent
from tests.training.specs import tiny_gpt

CPU = torch.device("cpu")
WIDTH, TIME, VOCABULARY = 16, 16, 256
FLOAT = 4
MICRO_BATCH, MICRO_BATCHES = 2, 4
#: Headers are few per cent of what it sends, and its gradients fill several of torch's buckets.
WIDE = {"layers": 2, "dim": 256, "context": 64}
#: Of one micro-batch between two layers.
HIDDEN = MICRO_BATCH * TIME * WIDTH * FLOAT


class Sent(NamedTuple):
    """By one rank in its second step; torch looks at its ranks' buckets in the first."""

    parameters: int  # bytes, of the whole model
    by_axis: dict[str, float]
    overlapped: float | None
    seconds: float
    carried: int  # through its sockets


def step(world: RankPlace, document: dict[str, Any]) -> Sent:
    spec = JobSpec.model_validate(document)
    state = new_state(spec, CPU, env.cache_directory(), building(spec))
    parameters = sum(parameter.nbytes for parameter in state.task.model.parameters())
    sizes, aborter = spec.parallelism.degrees(world.world_size), GroupAborter()
    group = join(world, aborter, mesh.axis_group_ranks(sizes))
    coordinates = Coordinates(sizes, group.rank)
    steps_from = make_ready(spec, state, group, coordinates)
    rebuild_optimizer(state, spec)
    step_runner = steps_from(spec, first_assignment(derived.micro_batches(spec), coordinates, None))
    step_runner.run(NothingAsked())
    group.barrier_and_leave()
    before = bytes_sent(aborter)
    report = step_runner.run(NothingAsked())
    group.barrier_and_leave()
    carried = bytes_sent(aborter) - before
    group.barrier_and_leave()  # who ends before the others have read closes their sockets
    return Sent(parameters, report.sent.by_axis, report.sent.overlapped, report.seconds, carried)


def run(ranks: int, plan: dict[str, Any], model: dict[str, Any] | None = None, **changes: Any) -> list[Sent]:
    document = tiny_gpt(ranks, dropout=0.0) | changes
    document |= {"model": document["model"] | (model or {}), "parallelism": plan}
    return run_ranks(step, ranks, document)


def test_every_axis_has_its_metric_in_the_order_of_the_mesh() -> None:
    assert tuple(SENT_METRICS) == (*AXES, WORLD)


def news(ranks: int, micro_batches: int = MICRO_BATCHES) -> float:
    """Five requests, of each rank the size of what it has to tell of a save, and of each micro-batch its loss and how often it was used: 8 bytes
    each, in a ring."""
    return ring(ranks, 8 * (5 + ranks + 2 * micro_batches))


def ring(ranks: int, size: float) -> float:
    return 2 * (ranks - 1) / ranks * size


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("reproducible", [True, False])
def test_replicas_send_what_a_ring_would(ranks: int, reproducible: bool) -> None:
    """The tree over even shares of micro-batches, powers of two, sends no more."""
    for sent in run(ranks, {"strategy": "ddp"}, reproducible=reproducible):
        assert sent.by_axis == pytest.approx({"replicate": ring(ranks, sent.parameters), "world": news(ranks)})


def test_shards_gather_once_and_scatter_once_in_each_pass() -> None:
    """What is in no unit, here all, stays whole from forward to backward. Norms are one number in a ring."""
    passes = MICRO_BATCHES // 2
    for sent in run(2, {"strategy": "fsdp"}):
        assert sent.by_axis == pytest.approx({"shard": passes * ring(2, sent.parameters) + ring(2, FLOAT), "world": news(2)})


def test_replicas_of_shards_add_up_their_parts_once() -> None:
    passes = MICRO_BATCHES // 4
    for sent in run(4, {"strategy": "fsdp", "shard": 2}):
        shard = passes * ring(2, sent.parameters) + ring(2, FLOAT)
        assert sent.by_axis == pytest.approx({"replicate": ring(2, sent.parameters / 2), "shard": shard, "world": news(4)})


def test_tensor_parts_gather_and_scatter_four_times_each_in_a_block() -> None:
    """By what one block more sends: around attention and feed-forward, forward and backward; and the gradients of its two norms."""
    one, two = (run(2, {"strategy": "ddp", "tensor": 2}, {"layers": layers}) for layers in (1, 2))
    block = MICRO_BATCHES * 8 * HIDDEN / 2 + ring(2, 2 * WIDTH * FLOAT)
    for fewer, more in zip(one, two, strict=True):
        assert more.by_axis["tensor"] - fewer.by_axis["tensor"] == pytest.approx(block)
        assert more.by_axis["world"] == pytest.approx(news(2))


def test_sequence_parts_pass_on_keys_and_values_and_their_gradients() -> None:
    """Gradients of parameters are added up over the same ranks."""
    own = 2 * HIDDEN / 2
    for sent in run(2, {"strategy": "ddp", "context": 2}):
        expected = MICRO_BATCHES * 2 * own + ring(2, sent.parameters)
        assert sent.by_axis == pytest.approx({"context": expected, "world": news(2)})


def test_stages_send_activations_one_way_and_gradients_the_other() -> None:
    """With an activation goes the state of the random numbers; both stages have the tied embedding, and send its gradient."""
    first, last = run(2, {"strategy": "ddp", "pipeline": 2}, {"layers": 2})
    embedding, random = VOCABULARY * WIDTH * FLOAT, torch.get_rng_state().nbytes
    assert first.by_axis["pipeline"] == MICRO_BATCHES * (HIDDEN + random) + embedding
    assert last.by_axis["pipeline"] == MICRO_BATCHES * HIDDEN + embedding
    assert first.overlapped is None  # nobody sees sends end that are waited for together
    for sent in (first, last):  # the norm with it: by stage a square, what computing took, and by rank the step's time
        assert sent.by_axis["world"] == pytest.approx(news(2) + ring(2, 8 * (2 + 1 + 2)))


@pytest.mark.parametrize("plan", [{"strategy": "fsdp"}, {"strategy": "ddp", "tensor": 2}], ids=["fsdp", "tensor"])
def test_what_a_step_counts_its_sockets_have_carried(plan: dict[str, Any]) -> None:
    for sent in run(2, plan, WIDE):
        assert sum(sent.by_axis.values()) == pytest.approx(sent.carried, rel=0.03)


def test_buckets_travel_beside_backward_and_the_tree_after_it() -> None:
    for sent in run(2, {"strategy": "ddp"}, WIDE, reproducible=False):
        assert sent.overlapped is not None
        assert 0 < sent.overlapped < sent.seconds
