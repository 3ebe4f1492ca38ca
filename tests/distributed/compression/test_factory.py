"""Reductions on a GPU, without one: torch's fake tensors have a device and no numbers, and refuse what a GPU would refuse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from paceline.distributed.collectives.options import Algorithm
from paceline.distributed.collectives.within import GroupWithin
from paceline.distributed.compression.factory import reduction_for
from paceline.distributed.compression.options import CompressionOptions
from paceline.distributed.compression.remainder import WithRemainder
from paceline.distributed.compression.top_k import TopK
from paceline.distributed.reduction import BackendSum, GradientBucket, GradientPiece, Reduction
from paceline.distributed.reduction_groups import ReductionGroups
from paceline.parallelism.communication.choices import ReductionChoice

DEVICE = "lazy"  # beside the host; of "cuda" a build of torch without CUDA makes no slices
SHAPE, RANK = (8, 6), 2
KEPT: dict[str, dict[str, tuple[int, ...]]] = {"residual": {"w": (48,)}, "power_sgd_factor": {"w": (6, RANK)}}


class GroupOfOne:
    size, rank, ranks = 1, 0, (0,)

    def sum(self, values: Tensor) -> Tensor:
        return values

    def all_gather(self, output: Tensor, part: Tensor) -> None:
        output.copy_(part)

    def reduce_scatter(self, output: Tensor, parts: Tensor) -> None:
        output.copy_(parts)


def sums(name: str) -> Reduction:
    group: Any = GroupOfOne()
    if name == "remainder":
        return WithRemainder(BackendSum(group))
    if name == "top_k between machines":
        groups = ReductionGroups(group, local=GroupWithin(group), peers=group)
        return reduction_for("hierarchical", CompressionOptions("top_k", 0.1, "exact", RANK, dense_steps=0), groups)
    return reduction_for("backend", CompressionOptions(name, 0.1, "exact", RANK, dense_steps=0), ReductionGroups(group))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("algorithm", "compression"),  # a ring is never asked for with a compression
    [("backend", "none"), ("backend", "bf16"), ("ring", "none"), ("hierarchical", "none"), ("hierarchical", "bf16")],
)
@pytest.mark.parametrize("had", [("backend",), ("backend", "ring"), ("backend", "hierarchical")], ids="+".join)
def test_what_a_way_is_called_is_what_is_done(algorithm: Any, compression: Any, had: tuple[Algorithm, ...]) -> None:
    group: Any = GroupOfOne()
    inside = {"local": GroupWithin(group), "peers": group} if "hierarchical" in had else {}
    groups = ReductionGroups(group, ring=cast(Any, object()) if "ring" in had else None, **inside)
    done = type(reduction_for(algorithm, CompressionOptions(compression), groups)).__name__
    named = {"ring": "RingSum", "hierarchical": "HierarchicalSum", "backend": "BackendSum" if compression == "none" else "Bfloat16Sum"}
    assert named[ReductionChoice(algorithm, compression).done_with(had).algorithm] == done


@pytest.fixture
def fake_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No answer depends on numbers, which there are not."""
    monkeypatch.setattr(torch, "isfinite", lambda _: True)
    monkeypatch.setattr(TopK, "_counts", lambda _, own: [own])
    with FakeTensorMode():
        yield


@pytest.mark.parametrize("name", ["top_k", "power_sgd", "remainder", "top_k between machines"])
@pytest.mark.parametrize("resumed", [False, True], ids=["new", "resumed"])
def test_gradients_on_a_gpu_go_on_from_what_was_kept_on_the_host(fake_device: None, name: str, resumed: bool) -> None:
    reduction = sums(name)
    if resumed:
        reduction.load_state({kind: {key: torch.zeros(shape) for key, shape in of_kind.items()} for kind, of_kind in KEPT.items()})
    for step in (1, 2):
        values = torch.zeros(48, device=DEVICE)
        reduction.sum(GradientBucket(values, [GradientPiece("w", SHAPE, 0, 48)], step))
        reduction.commit()
        assert values.device.type == DEVICE
    told = reduction.state()
    assert told["residual"].keys() == {"w"}
    assert {part.device.type for of_kind in told.values() for part in of_kind.values()} == {"cpu"}
