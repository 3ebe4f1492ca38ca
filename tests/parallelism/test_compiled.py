"""Compiled blocks: torch.compile on real ranks, beside the same training that is not compiled."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from paceline.parallelism.activation_checkpoint import checkpoint_activations
from paceline.parallelism.blocks import blocks_of
from paceline.parallelism.compiled import CompilerError, compile_blocks, require_compiler
from paceline.training.link import RankPlace
from paceline.training.models.gpt.config import GptModel
from paceline.training.models.gpt.model import build
from paceline.training.reporting.failures import kind_of
from tests.compilers import COMPILE_TIMEOUT_SECONDS, needs_compiler
from tests.parallelism.parity import STATISTICS, Trained, one_process, train
from tests.ranks import run_ranks
from tests.training.specs import tiny_gpt, tiny_resnet, write_batches

pytestmark = pytest.mark.timeout(3 * COMPILE_TIMEOUT_SECONDS)

CPU = torch.device("cpu")
#: Kernels are fused, so that what is between operations is rounded less often. Seen over 20 steps of AdamW: 2e-6.
RELATIVE = 1e-5
PLANS: dict[str, tuple[dict[str, Any], int]] = {
    "single": ({"parallelism": {"strategy": "single"}, "reproducible": False}, 1),
    "ddp": ({"parallelism": {"strategy": "ddp"}}, 2),
    "ddp, not reproducible": ({"parallelism": {"strategy": "ddp"}, "reproducible": False}, 2),
    "ddp, checkpointed": ({"parallelism": {"strategy": "ddp", "activation_checkpointing": "full"}}, 2),
    "fsdp": ({"parallelism": {"strategy": "fsdp"}}, 2),
    "pipeline": ({"parallelism": {"pipeline": 2}}, 2),
    "pipeline, checkpointed": ({"parallelism": {"pipeline": 2, "pipeline_schedule": "gpipe", "activation_checkpointing": "full"}}, 2),
    "pipelines, reproducible": ({"parallelism": {"pipeline": 2}, "reproducible": True}, 4),
    "pipeline of shards": ({"parallelism": {"pipeline": 2, "strategy": "fsdp"}}, 4),
    "fsdp, checkpointed": ({"parallelism": {"strategy": "fsdp", "activation_checkpointing": "full"}}, 2),
}


def gpt() -> dict[str, Any]:
    """Five micro-batches, the last one of one sample."""
    document = tiny_gpt(dropout=0.0, global_batch_size=9, micro_batch_size=2)
    return document | {"model": document["model"] | {"layers": 2}}


def run(spec: dict[str, Any], name: str) -> list[Trained]:
    plan, ranks = PLANS[name]
    document = spec | plan | {"resources": {"nodes": ranks}}
    found: list[Trained] = run_ranks(train, ranks, document, timeout=COMPILE_TIMEOUT_SECONDS)
    return found


@pytest.mark.slow("torch.compile writes and compiles C++ on each rank")
@needs_compiler
@pytest.mark.parametrize("name", PLANS)
def test_compiled_training_is_equal_to_rounding(name: str) -> None:
    expected = one_process(gpt() | PLANS["single"][0] | {"resources": {"nodes": 1}})
    ranks = run(gpt() | {"compile": True}, name)
    assert set[str]().union(*(found.parameters for found in ranks)) == expected.parameters.keys()
    for found in ranks:
        assert found.losses == pytest.approx(expected.losses, rel=RELATIVE)
        assert found.norms == pytest.approx(expected.norms, rel=RELATIVE)
        assert found.evaluation == pytest.approx(expected.evaluation, rel=RELATIVE)
        assert found.losses != expected.losses  # it was compiled: some sum is rounded otherwise


@needs_compiler
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_is_compiled_too(precision: str) -> None:
    expected = one_process(gpt() | PLANS["single"][0] | {"resources": {"nodes": 1}})
    for found in run(gpt() | {"compile": True, "precision": precision}, "ddp"):
        assert found.losses == pytest.approx(expected.losses, rel=5e-3)


@needs_compiler
def test_batch_norm_counts_once(tmp_path: Path) -> None:
    write_batches(tmp_path)
    document = tiny_resnet(tmp_path) | {"optimizer": {"kind": "sgd", "lr": 0.02, "nesterov": True}}
    (expected,) = run(document, "single")
    (found,) = run(document | {"compile": True}, "single")
    assert found.losses == pytest.approx(expected.losses, rel=1e-4)
    for name in (name for name in expected.parameters if name.endswith(STATISTICS)):
        assert found.parameters[name] == pytest.approx(expected.parameters[name], rel=1e-3, abs=1e-4), name


def names(model: nn.Module) -> tuple[list[str], list[str]]:
    return list(model.state_dict()), [name for name, _ in model.named_modules()]


def names_before_and_after(world: RankPlace) -> list[tuple[list[str], list[str]]]:
    model = build(GptModel(layers=2, heads=2, dim=16))
    found = [names(model)]
    for _ in range(2):  # another generation
        compile_blocks(model, reproducible=True)
        checkpoint_activations(blocks_of(model), "full")
        found.append(names(model))
    return found


def test_names_of_parameters_stay_what_they_are() -> None:
    """Nothing is compiled before it is called."""
    ((before, *after),) = run_ranks(names_before_and_after, 1)
    assert after == [before, before]


class Widths(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, inputs: Tensor) -> Tensor:
        return (inputs * self.scale).relu().sum()


def meet_widths(world: RankPlace) -> str:
    model = nn.Sequential(Widths())
    compile_blocks(model, reproducible=True)
    try:
        for width in range(2, 30):
            model(torch.ones(width))
    except CompilerError as error:
        return str(error)
    return f"all {width} were taken"


@needs_compiler
def test_too_many_shapes_are_refused_instead_of_going_on_uncompiled() -> None:
    (said,) = run_ranks(meet_widths, 1, timeout=COMPILE_TIMEOUT_SECONDS)
    assert said == "compile=true: Widths is given more kinds of inputs than torch compiles for; use batches of one shape, or compile: false"


def without_compiler(world: RankPlace, cache: str) -> tuple[str, str]:
    os.environ |= {"CXX": "/nonexistent/g++", "PATH": "/nonexistent", "TORCHINDUCTOR_CACHE_DIR": cache}
    try:
        require_compiler(CPU)
    except CompilerError as error:
        return kind_of(error, 2), str(error)
    return "none", "there is one"


def test_a_node_without_a_compiler_says_so_before_training_begins(tmp_path: Path) -> None:
    ((kind, said),) = run_ranks(without_compiler, 1, str(tmp_path))
    assert kind == "invalid_input"
    assert said.startswith("compile=true needs a C++ compiler (g++, or what CXX names) and Python's headers on every node: ")
    assert said.endswith("install them there, or use compile: false")
