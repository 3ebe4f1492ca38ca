"""Shapes beside what else is known of the same models. What they take in memory is measured in tests/parallelism."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from torch import nn

from paceline.parallelism.model_shape import CPU, CUDA, NumberFormats, Precision
from paceline.parallelism.pipelines.chain import Unit
from paceline.parallelism.pipelines.stages import chain_of, costs_of
from paceline.training.models.catalog import Model, parameter_count, shape_of
from paceline.training.models.gpt import model as gpt
from paceline.training.models.gpt import stages as gpt_stages
from paceline.training.models.gpt.config import GptModel
from paceline.training.models.gpt.sizes import swiglu_width
from paceline.training.models.mlp import model as mlp
from paceline.training.models.mlp import stages as mlp_stages
from paceline.training.models.mlp.config import MlpModel
from paceline.training.models.mlp.sizes import CLASSIFICATION_SHAPES
from paceline.training.models.resnet import model as resnet
from paceline.training.models.resnet import stages as resnet_stages
from paceline.training.models.resnet.config import ResnetModel
from paceline.training.planning.estimates import memory_of, setup_of, stage_names
from paceline.training.schema.data import Cifar10, Digits
from paceline.training.schema.parallelism import Parallelism
from tests import factories

MODELS: list[Model] = [
    GptModel(),
    GptModel(layers=3, heads=3, dim=42, context=9, vocab_size=300, tied_embeddings=False),
    MlpModel(hidden=(7, 3)),
    ResnetModel(depth=14, width=5),
]


@pytest.mark.parametrize("model", MODELS)
def test_a_shape_has_the_model_s_parameters(model: Model) -> None:
    assert shape_of(model, Digits(), NumberFormats()).parameters == parameter_count(model, Digits())  # type: ignore[union-attr]


def test_an_mlp_is_as_large_as_its_images() -> None:
    data = Cifar10(path="/data")
    assert shape_of(MlpModel(), data, NumberFormats()).parameters == parameter_count(MlpModel(), data)


@pytest.mark.parametrize(("precision", "element", "copied"), [("fp32", 4, 0), ("bf16", 2, 3)])
def test_a_block_keeps_what_its_formula_says(precision: Precision, element: int, copied: int) -> None:
    spec = GptModel(dim=64, heads=4, context=32)
    shape = shape_of(spec, None, NumberFormats(precision))
    a_token = 16 * 64 + (7 + copied) * element * 64 + 4 * element * swiglu_width(64) + 8 + 4 * 4
    assert shape.layers[1].saved == 32 * a_token


def test_arithmetic_is_two_operations_a_weight_and_token_and_the_attention() -> None:
    """PaLM (Chowdhery et al. 2022, appendix B): 2N + 4·l·d·t forward, N without what is only looked up, and without norms."""
    spec = GptModel(layers=3, dim=64, heads=4, context=32)
    products = parameter_count(spec) - 64 * (2 * 3 + 1)  # type: ignore[operator]
    assert shape_of(spec, None, NumberFormats()).flops == 32 * (2 * products + 4 * 3 * 64 * 32)


def test_a_gpu_keeps_less() -> None:
    dropout = GptModel(dropout=0.1)
    on_cpu, on_gpu = (shape_of(dropout, None, NumberFormats("bf16", kernels)).layers[1] for kernels in (CPU, CUDA))
    assert on_gpu.saved < on_cpu.saved


def test_a_job_is_estimated_as_it_will_be_trained() -> None:
    length = {"steps": 1, "global_batch_size": 12, "micro_batch_size": 2}
    spec = factories.job_spec(parallelism={"strategy": "ddp"}, resources={"nodes": 3}, training=length)
    setup = setup_of(spec)
    assert (setup.degrees.replicate, setup.micro_batch_size, setup.micro_batches, setup.reproducible) == (3, 2, 6, True)
    found = memory_of(spec, CPU)
    assert found is not None
    assert found.total == found.parameters + found.gradients + found.optimizer + found.activations + found.buffers


def test_nobody_knows_what_a_model_of_the_user_s_own_keeps() -> None:
    assert memory_of(factories.job_spec(entrypoint="my_task:make", model=None, data=None), CPU) is None


@pytest.mark.parametrize("model", MODELS)
def test_the_plan_cuts_a_model_where_its_ranks_do(model: Model) -> None:
    """Units that are counted from a spec are the built model's own, with its parameters."""
    shape = shape_of(model, Digits(), NumberFormats())
    task_model, units = built(model)
    counted = [sum(layer.parameters + layer.borrowed for layer in unit) for unit in chain_of(shape.layers)]  # type: ignore[union-attr]
    assert counted == [sum(parameter.numel() for parameter in unit.parameters) for unit in units(task_model)]
    assert len(costs_of(shape.layers)) == len(counted)  # type: ignore[union-attr]
    assert min(costs_of(shape.layers)) > 0  # type: ignore[union-attr]


def built(model: Model) -> tuple[nn.Module, Callable[[Any], Sequence[Unit]]]:
    if isinstance(model, GptModel):
        return gpt.build(model), gpt_stages.units
    if isinstance(model, MlpModel):
        return mlp.build(model, *CLASSIFICATION_SHAPES["digits"]), mlp_stages.units
    assert isinstance(model, ResnetModel)
    return resnet.build(model), resnet_stages.units


def test_a_pipeline_s_stages_are_told_in_words() -> None:
    gpt_of_six = {"kind": "gpt", "layers": 6, "heads": 2, "dim": 16, "context": 8}
    text = {"kind": "stdlib_text"}
    spec = factories.job_spec(model=gpt_of_six, data=text, parallelism={"pipeline": 2}, resources={"nodes": 2})
    assert stage_names(spec) == ["the embedding, blocks 0 to 2", "blocks 3 to 5, the head, the loss"]
    plan = {"pipeline": 2, "pipeline_schedule": "zero_bubble_v"}
    assert stage_names(spec.model_copy(update={"parallelism": Parallelism.model_validate(plan)}))[1:3] == ["blocks 1 to 2", "blocks 3 to 4"]
    assert stage_names(factories.job_spec()) == []


def test_a_job_in_stages_is_estimated_by_its_schedule() -> None:
    plan = {"pipeline": 2, "pipeline_schedule": "gpipe"}
    length = {"steps": 1, "global_batch_size": 8, "micro_batch_size": 1}
    spec = factories.job_spec(parallelism=plan, resources={"nodes": 2}, training=length)
    gpipe, one_f_one_b = memory_of(spec, CPU), memory_of(spec.model_copy(update={"parallelism": Parallelism(pipeline=2)}), CPU)
    assert gpipe
    assert one_f_one_b
    assert gpipe.activations > 2 * one_f_one_b.activations
    assert setup_of(spec).schedule.bubble == pytest.approx(1 / 9)
