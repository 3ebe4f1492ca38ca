"""Sums of the largest elements over real ranks: what is sent and what is left make up the gradients, in every step."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from paceline.distributed.abort import GroupAborter
from paceline.distributed.compression.factory import reduction_for
from paceline.distributed.compression.options import CompressionOptions
from paceline.distributed.joining import join
from paceline.distributed.reduction import GradientBucket, GradientPiece
from paceline.distributed.reduction_groups import ReductionGroups
from paceline.training.link import RankPlace
from tests.ranks import run_ranks

SHAPES = {"a.weight": (64, 48), "a.bias": (48,), "b.weight": (7, 11, 13), "c.weight": (1, 1), "d.weight": (300, 500)}
STEPS = 6
Results = list[tuple[Tensor, dict[str, Tensor]]]
LOSSY: list[dict[str, Any]] = [
    {"compression": "top_k", "ratio": 0.02, "threshold": "exact"},
    {"compression": "top_k", "ratio": 0.02, "threshold": "sampled"},
    {"compression": "power_sgd", "rank": 2},
]


def pieces() -> list[GradientPiece]:
    found, offset = [], 0
    for name, shape in SHAPES.items():
        length = math.prod(shape)
        found.append(GradientPiece(name, shape, offset, length, compressible=len(shape) > 1))
        offset += length
    return found


def gradients(rank: int, step: int, dtype: torch.dtype = torch.float32) -> Tensor:
    total = sum(math.prod(shape) for shape in SHAPES.values())
    values = torch.randn(total, generator=torch.Generator().manual_seed(1000 * rank + step))
    return (values * torch.linspace(-2, 2, total).exp()).to(dtype)


def sums(
    world: RankPlace, options: dict[str, Any], steps: int, dtype: torch.dtype, spoil: tuple[int, int, float] | None = None
) -> list[Any]:
    """For each step: (sum, residuals afterwards). `spoil`: (rank, step, value) of a gradient that is not finite."""
    group = join(world, GroupAborter(), {"replicate": [list(range(world.world_size))]})
    reduction = reduction_for("backend", CompressionOptions(dense_steps=0, **options), ReductionGroups(group.axis_groups["replicate"]))
    found = []
    for step in range(1, steps + 1):
        values = gradients(world.rank, step, dtype)
        if spoil and spoil[:2] == (world.rank, step):
            values[5] = spoil[2]
        reduction.sum(GradientBucket(values, pieces(), step))
        reduction.commit()
        left = reduction.state().get("residual", {})
        found.append((values.numpy(), {name: part.numpy().copy() for name, part in left.items()}))
    group.barrier_and_leave()
    return found


def results_of(ranks: int, options: dict[str, Any], steps: int, dtype: torch.dtype = torch.float32, **more: Any) -> list[Results]:
    """By rank and step: (sum, residuals). Tensors of a rank that has ended cannot be received, arrays can."""
    found = run_ranks(sums, ranks, options, steps, dtype, *more.values())
    return [
        [(torch.from_numpy(total), {name: torch.from_numpy(part) for name, part in left.items()}) for total, left in of_rank]
        for of_rank in found
    ]


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("options", LOSSY, ids=lambda each: "-".join(map(str, each.values())))
def test_what_was_sent_and_what_is_left_are_the_gradients_of_all_steps(ranks: int, options: dict[str, Any]) -> None:
    by_rank = results_of(ranks, options, STEPS)
    wanted = torch.zeros_like(gradients(0, 1))
    sent = torch.zeros_like(wanted)
    for step in range(STEPS):
        wanted += sum(gradients(rank, step + 1) for rank in range(ranks))
        results = [found[step][0] for found in by_rank]
        assert all(torch.equal(result, results[0]) for result in results)  # to the last bit
        sent += results[0]
        left = torch.zeros_like(wanted)
        for piece in pieces():
            parts = [found[step][1][piece.name] for found in by_rank if piece.name in found[step][1]]
            if parts:
                left[piece.offset : piece.offset + piece.length] = torch.stack(parts).sum(0)
        torch.testing.assert_close(sent + left, wanted, atol=2e-4, rtol=1e-4)
        assert not any("bias" in name for name in by_rank[0][step][1])


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize(
    "options", [*LOSSY, {"compression": "bf16"}, {"compression": "fp16"}], ids=lambda each: "-".join(map(str, each.values()))
)
def test_a_gradient_that_is_not_finite_reaches_every_rank_and_no_residual(options: dict[str, Any], value: float) -> None:
    for found in results_of(2, options, 3, spoil=(1, 2, value)):
        assert not torch.isfinite(found[1][0][5])
        assert torch.isfinite(found[2][0]).all()
        assert all(torch.isfinite(part).all() for _, left in found for part in left.values())
        if found[1][1]:
            assert all(torch.equal(found[1][1][name], part) for name, part in found[0][1].items())


@pytest.mark.parametrize(("options", "bound"), [({"compression": "bf16"}, 3 * 2**-8), ({"compression": "fp16"}, 3 * 2**-11)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_sixteen_bits_round(options: dict[str, Any], bound: float, dtype: torch.dtype) -> None:
    exact = sum(gradients(rank, 1, dtype).float() for rank in range(3))
    sizes = sum(gradients(rank, 1, dtype).float().abs() for rank in range(3))
    results = [found[0][0] for found in results_of(3, options, 1, dtype)]
    assert all(torch.equal(result, results[0]) for result in results)
    assert bool(((results[0].float() - exact).abs() <= bound * sizes + 1e-6).all())


@pytest.mark.parametrize("threshold", ["exact", "sampled"])
def test_a_ratio_of_one_is_the_exact_sum(threshold: str) -> None:
    exact = sum(gradients(rank, 1) for rank in range(2))
    for found in results_of(2, {"compression": "top_k", "ratio": 1.0, "threshold": threshold}, 1):
        torch.testing.assert_close(found[0][0], exact, atol=1e-6, rtol=1e-6)
        assert all(not part.any() for part in found[0][1].values())


def test_not_a_number_of_the_last_rank_reaches_all_in_sixteen_bits_too() -> None:
    for found in results_of(3, {"compression": "fp16"}, 2, spoil=(2, 2, math.nan)):
        assert torch.isnan(found[1][0][5])
        assert torch.isfinite(found[1][0][6:]).all()


@pytest.mark.parametrize("threshold", ["exact", "sampled"])
def test_what_is_sent_of_fp16_is_added_in_fp32_and_rounded_once(threshold: str) -> None:
    by_rank = results_of(3, {"compression": "top_k", "ratio": 0.5, "threshold": threshold}, 1, torch.float16)
    gradients_of_all = torch.stack([gradients(rank, 1, torch.float16).float() for rank in range(3)]).sum(0)
    for piece in (piece for piece in pieces() if piece.compressible):
        part = slice(piece.offset, piece.offset + piece.length)
        sent = gradients_of_all[part] - sum(found[0][1][piece.name] for found in by_rank)
        total = by_rank[0][0][0][part]
        assert total.dtype == torch.float16
        assert bool(((total.float() - sent).abs() <= 2**-11 * sent.abs() + 1e-6).all())
