"""The estimate beside what real training steps took from torch's allocator. CPU only: a GPU's kernels keep other things."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from distributed.abort import Fence
from distributed.process_group import SoloGroup, join
from parallelism.estimate import Checkpointing, memory
from parallelism.shape import Numbers
from tests.allocations import peak_bytes, train
from tests.ranks import run_ranks
from training.estimates import setup_of, shape_of
from training.link import World
from training.models.gpt.model import Gpt
from training.spec import JobSpec

TOLERANCE = 0.15
GPT = {"kind": "gpt", "layers": 2, "dim": 96, "heads": 4, "context": 64}
LARGE_VOCABULARY = GPT | {"dim": 48, "context": 32, "vocab_size": 2000}
MLP = {"kind": "mlp", "hidden": [96, 160]}
RESNET = {"kind": "resnet", "depth": 8, "width": 8}
ATEN = torch.ops.aten
PRODUCTS = {ATEN.mm.default, ATEN.addmm.default, ATEN._scaled_dot_product_flash_attention_for_cpu.default}


def spec_of(model: dict[str, Any], batch: int, micro_batch: int, **changes: Any) -> JobSpec:
    data = {"kind": "stdlib_text"} if model["kind"] == "gpt" else {"kind": "cifar10", "path": "/nonexistent"}
    fields = {"name": "measured", "model": model, "data": data, "parallelism": {"strategy": "single"}, "reproducible": False}
    length = {"steps": 2, "global_batch_size": batch, "micro_batch_size": micro_batch}
    return JobSpec.model_validate(fields | {"training": length} | changes)


def estimated(spec: JobSpec, checkpointing: Checkpointing = "none") -> int:
    assert spec.model is not None
    setup = replace(setup_of(spec), activation_checkpointing=checkpointing)
    return memory(shape_of(spec.model, spec.data, Numbers(spec.precision)), setup).total


def checkpoint_blocks(model: nn.Module, *, selective: bool) -> None:
    assert isinstance(model, Gpt)
    for block in model.blocks:
        block.forward = Recomputed(block.forward, selective=selective)


class Recomputed:
    def __init__(self, forward: Any, *, selective: bool) -> None:
        self.forward, self.options = forward, options(selective=selective)

    def __call__(self, *inputs: Any) -> Any:
        return checkpoint(self.forward, *inputs, use_reentrant=False, **self.options)


def options(*, selective: bool) -> dict[str, Any]:
    return {"context_fn": contexts} if selective else {}


def contexts() -> Any:
    return create_selective_checkpoint_contexts(keep_products)  # type: ignore[no-untyped-call]


def keep_products(context: Any, operation: Any, *inputs: Any, **named: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if operation in PRODUCTS else CheckpointPolicy.PREFER_RECOMPUTE


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    ("model", "batch", "micro_batch", "reproducible"),
    [
        (GPT, 2, 2, False),
        (GPT, 8, 8, False),
        (GPT, 8, 2, False),
        (GPT, 8, 2, True),
        (GPT | {"layers": 4, "dim": 32, "context": 128, "dropout": 0.1}, 4, 4, False),
        (LARGE_VOCABULARY, 4, 4, False),
        (LARGE_VOCABULARY | {"tied_embeddings": False}, 6, 2, True),
        (MLP, 64, 64, False),
        (MLP | {"dropout": 0.1}, 12, 2, True),
        (RESNET, 16, 16, False),
        (RESNET | {"depth": 14, "width": 12}, 12, 4, True),
    ],
)
def test_one_process(model: dict[str, Any], batch: int, micro_batch: int, reproducible: bool, precision: str) -> None:
    optimizer = {"kind": "sgd"} if model["kind"] == "resnet" else {"kind": "adamw"}
    spec = spec_of(model, batch, micro_batch, precision=precision, reproducible=reproducible, optimizer=optimizer)
    measured = peak_bytes(lambda: train(spec, SoloGroup()))
    assert estimated(spec) == pytest.approx(measured, rel=TOLERANCE)


@pytest.mark.parametrize("selective", [False, True])
def test_activations_computed_again(selective: bool) -> None:
    """In fp32: under autocast the estimate is up to 36 % too high here, for a reason that is not known yet."""
    spec = spec_of(GPT | {"layers": 4}, 8, 8)
    measured = peak_bytes(lambda: train(spec, SoloGroup(), lambda model: checkpoint_blocks(model, selective=selective)))
    assert estimated(spec, "selective" if selective else "full") == pytest.approx(measured, rel=TOLERANCE)
    assert measured < 0.9 * estimated(spec)  # it must have saved something, or nothing is shown


def trained(world: World, document: dict[str, Any]) -> int:
    """Peak of one rank."""
    group = join(world, Fence())
    try:
        return peak_bytes(lambda: train(JobSpec.model_validate(document), group))
    finally:
        group.close()


@pytest.mark.parametrize(("ranks", "batch", "reproducible"), [(2, 4, False), (2, 12, True), (3, 8, True)])
def test_replicas(ranks: int, batch: int, reproducible: bool) -> None:
    spec = spec_of(GPT, batch, 2, parallelism={"strategy": "ddp"}, resources={"nodes": ranks}, reproducible=reproducible)
    fullest = max(run_ranks(trained, ranks, spec.model_dump(mode="json")))
    assert estimated(spec) == pytest.approx(fullest, rel=TOLERANCE)
