"""Shapes beside what else is known of the same models. What they take in memory is measured in tests/parallelism."""

from __future__ import annotations

import pytest

from parallelism.shape import CPU, CUDA, Numbers, Precision
from tests import factories
from training.estimates import memory_of, setup_of, shape_of
from training.sizes import parameter_count, swiglu_width
from training.workload import Cifar10, Digits, GptModel, MlpModel, Model, ResnetModel

MODELS: list[Model] = [
    GptModel(),
    GptModel(layers=3, heads=3, dim=42, context=9, vocab_size=300, tied_embeddings=False),
    MlpModel(hidden=(7, 3)),
    ResnetModel(depth=14, width=5),
]


@pytest.mark.parametrize("model", MODELS)
def test_a_shape_has_the_model_s_parameters(model: Model) -> None:
    assert shape_of(model, Digits(), Numbers()).parameters == parameter_count(model, Digits())


def test_an_mlp_is_as_large_as_its_images() -> None:
    data = Cifar10(path="/data")
    assert shape_of(MlpModel(), data, Numbers()).parameters == parameter_count(MlpModel(), data)


@pytest.mark.parametrize(("precision", "element"), [("fp32", 4), ("bf16", 2)])
def test_a_block_keeps_what_its_formula_says(precision: Precision, element: int) -> None:
    spec = GptModel(dim=64, heads=4, context=32)
    shape = shape_of(spec, None, Numbers(precision))
    a_token = 16 * 64 + 9 * element * 64 + 4 * element * swiglu_width(64) + 8 + 4 * 4
    assert shape.layers[1].saved == 32 * a_token


def test_arithmetic_is_two_operations_a_weight_and_token_and_the_attention() -> None:
    """PaLM (Chowdhery et al. 2022, appendix B): 2N + 4·l·d·t forward, N without what is only looked up, and without norms."""
    spec = GptModel(layers=3, dim=64, heads=4, context=32)
    products = parameter_count(spec) - 64 * (2 * 3 + 1)
    assert shape_of(spec, None, Numbers()).flops == 32 * (2 * products + 4 * 3 * 64 * 32)


def test_a_gpu_keeps_less() -> None:
    dropout = GptModel(dropout=0.1)
    on_cpu, on_gpu = (shape_of(dropout, None, Numbers("bf16", kernels)).layers[1] for kernels in (CPU, CUDA))
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
