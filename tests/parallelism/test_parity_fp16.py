"""fp16 beside fp32 on one process, over 20 steps; and an overflow, which must skip the same update on every rank and under every plan."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from paceline.training.optim.loss_scale import INITIAL, LossScale
from tests.parallelism.fully_sharded.test_parity_fsdp import gpt
from tests.parallelism.overflow import IN_THE_FIRST_LAYER, STEP, overflowing
from tests.parallelism.parity import STATISTICS, STEPS, Trained, one_process, publish, train
from tests.ranks import run_ranks

#: Relative. Seen: losses 3e-5, norms 0.4 % apart.
LOSSES, NORMS = 2e-4, 1e-2
#: Of a pipeline beside fp16 on one process, parameters too. Seen: 2e-7.
BESIDE_FP16 = 1e-5
#: Some of a GPT's gradients overflow with it, and with the next smaller ones.
TOO_LARGE = 2.0**24
MOST_SKIPPED = 10
SINGLE = {"parallelism": {"strategy": "single"}, "reproducible": False}
DDP = {"parallelism": {"strategy": "ddp"}}
FAST = DDP | {"reproducible": False}
FSDP = {"parallelism": {"strategy": "fsdp"}}
#: By name: what is given beside the spec, and on how many ranks.
Plans = dict[str, tuple[dict[str, Any], int]]
WHOLE: Plans = {
    "single": (SINGLE, 1),
    "ddp": (DDP, 2),
    "ddp-4": (DDP, 4),
    "ddp, not reproducible": (FAST, 2),
    "ddp-4, not reproducible": (FAST, 4),
    "fsdp": (FSDP, 2),
    "fsdp-4": (FSDP, 4),
    "hsdp": ({"parallelism": {"strategy": "fsdp", "replicate": 2}}, 4),
    "zero-2": ({"parallelism": {"strategy": "fsdp", "reshard_after_forward": False}}, 2),
    "fsdp, offloaded": ({"parallelism": {"strategy": "fsdp", "cpu_offload": True}}, 2),
    "fsdp, checkpointed": ({"parallelism": {"strategy": "fsdp", "activation_checkpointing": "full"}}, 2),
    "ddp, checkpointed": ({"parallelism": {"strategy": "ddp", "activation_checkpointing": "selective"}}, 2),
}
CUT: Plans = {
    "tensor": ({"parallelism": {"tensor": 2}}, 2),
    "context": ({"parallelism": {"context": 2}}, 2),
    "context and tensor": ({"parallelism": {"context": 2, "tensor": 2}}, 4),
    "tensor of shards": ({"parallelism": {"strategy": "fsdp", "shard": 2, "tensor": 2}}, 4),
}
STAGED: Plans = {
    "gpipe": ({"parallelism": {"pipeline": 2, "pipeline_schedule": "gpipe"}}, 2),
    "1f1b": ({"parallelism": {"pipeline": 2, "pipeline_schedule": "1f1b"}}, 2),
    "interleaved": ({"parallelism": {"pipeline": 2, "pipeline_schedule": "interleaved_1f1b"}}, 2),
    "zero bubble": ({"parallelism": {"pipeline": 2, "pipeline_schedule": "zero_bubble"}}, 2),
    "zero bubble v": ({"parallelism": {"pipeline": 2, "pipeline_schedule": "zero_bubble_v"}}, 2),
}
PRODUCTS: Plans = {
    "tensor in stages": ({"parallelism": {"pipeline": 2, "tensor": 2}}, 4),
}
PLANS = WHOLE | CUT | STAGED | PRODUCTS


def run(spec: dict[str, Any], name: str, **options: Any) -> list[Trained]:
    plan, ranks = PLANS[name]
    found: list[Trained] = run_ranks(functools.partial(train, **options), ranks, spec | plan | {"resources": {"nodes": ranks}})
    return found


@pytest.mark.parametrize("name", PLANS)
def test_fp16_stays_close_to_fp32_on_one_process(name: str) -> None:
    expected = one_process(gpt() | SINGLE | {"resources": {"nodes": 1}})
    for found in run(gpt() | {"precision": "fp16"}, name):
        assert found.losses == pytest.approx(expected.losses, rel=LOSSES)
        assert found.norms == pytest.approx(expected.norms, rel=NORMS)
        assert found.losses != expected.losses  # it is another precision
        assert found.scale == LossScale(INITIAL, good_steps=len(found.losses))
    plan, ranks = PLANS[name]
    publish(gpt() | {"precision": "fp16"} | plan | {"resources": {"nodes": ranks}}, LOSSES, expected, found, losses_only=True)


@pytest.mark.parametrize("name", WHOLE)
def test_an_overflow_on_one_rank_skips_that_update_on_all(name: str) -> None:
    ranks = run(overflowing(), name)
    for found in ranks:
        assert found.skipped == [STEP]
        assert found.scale == LossScale(INITIAL / 2, skipped_updates=1, good_steps=len(found.losses) - STEP)
        assert weights(found) == weights(ranks[0])


@pytest.mark.parametrize("name", STAGED)
def test_an_overflow_in_the_first_stage_alone_skips_that_update_in_all(name: str) -> None:
    expected = one_process(IN_THE_FIRST_LAYER | SINGLE | {"resources": {"nodes": 1}})
    ranks = run(IN_THE_FIRST_LAYER, name)
    assert {name for found in ranks for name in found.parameters} == set(expected.parameters)
    for found in ranks:
        assert found.skipped == expected.skipped == [STEP]
        assert found.scale == expected.scale == LossScale(INITIAL / 2, skipped_updates=1, good_steps=STEPS - STEP)
        assert found.losses == pytest.approx(expected.losses, rel=BESIDE_FP16)
        for parameter, values in found.parameters.items():
            assert values == pytest.approx(expected.parameters[parameter], rel=BESIDE_FP16, abs=BESIDE_FP16), parameter


@pytest.mark.parametrize("name", CUT)
def test_a_scale_that_is_too_large_comes_down_on_all_ranks_of_a_cut_model(name: str) -> None:
    """As long as some gradients overflow, be it one rank's part of them. How often is a matter of rounding in the end, so that one process may
    skip another step."""
    ranks = run(gpt() | {"precision": "fp16"}, name, scale=TOO_LARGE, steps=2 * MOST_SKIPPED)
    assert ranks[0].skipped[:3] == [1, 2, 3]
    assert ranks[0].scale.value == TOO_LARGE / 2 ** len(ranks[0].skipped)
    assert len(ranks[0].skipped) <= MOST_SKIPPED
    for found in ranks:
        assert (found.skipped, found.scale) == (ranks[0].skipped, ranks[0].scale)


def weights(found: Trained) -> dict[str, list[float]]:
    """Without running statistics, which plain data parallelism keeps on each rank for itself."""
    return {name: values for name, values in found.parameters.items() if not name.endswith(STATISTICS)}
