"""The estimate beside what real training steps took from torch's allocator. CPU only: a GPU's kernels keep other things."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.distributed.solo_group import SoloGroup
from paceline.parallelism import mesh
from paceline.parallelism.model_shape import CPU
from paceline.training.link import RankPlace
from paceline.training.planning.estimates import memory_of
from paceline.training.spec.job import JobSpec
from tests.allocations import peak_bytes, train
from tests.ranks import run_ranks

TOLERANCE = 0.15
GPT = {"kind": "gpt", "layers": 2, "dim": 96, "heads": 4, "context": 64}
LARGE_VOCABULARY = GPT | {"dim": 48, "context": 32, "vocab_size": 2000}
MLP = {"kind": "mlp", "hidden": [96, 160]}
RESNET = {"kind": "resnet", "depth": 8, "width": 8}
IMAGENET = {"kind": "resnet", "width": 16}
SINGLE = {"strategy": "single"}
LLAMA = {
    "model_type": "llama",
    "vocab_size": 256,
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
}


def spec_of(model: dict[str, Any], batch: int, micro_batch: int, **changes: Any) -> JobSpec:
    data = {"kind": "stdlib_text"} if model["kind"] in ("gpt", "hf") else {"kind": "cifar10", "path": "/nonexistent"}
    fields = {"name": "measured", "model": model, "data": data, "parallelism": SINGLE, "reproducible": False}
    length = {"steps": 2, "global_batch_size": batch, "micro_batch_size": micro_batch}
    return JobSpec.model_validate(fields | {"training": length} | changes)


def estimated(spec: JobSpec) -> int:
    found = memory_of(spec, CPU)
    assert found is not None
    return found.total


def unfolds_convolutions(precision: str) -> bool:
    """Half precision is slow on every CPU; for bf16 those with AVX-512 or better have kernels."""
    return precision == "fp16" or (precision == "bf16" and not torch.ops.mkldnn._is_mkldnn_bf16_supported())


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
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
        (IMAGENET | {"num_layers": 18}, 32, 32, False),
        (IMAGENET | {"num_layers": 50}, 32, 16, True),
    ],
)
def test_one_process(model: dict[str, Any], batch: int, micro_batch: int, reproducible: bool, precision: str) -> None:
    if model["kind"] == "resnet" and unfolds_convolutions(precision):
        pytest.skip(f"on this CPU torch unfolds the inputs of {precision} convolutions, which nobody trains with and no estimate counts")
    optimizer = {"kind": "sgd"} if model["kind"] == "resnet" else {"kind": "adamw"}
    spec = spec_of(model, batch, micro_batch, precision=precision, reproducible=reproducible, optimizer=optimizer)
    measured = peak_bytes(lambda: train(spec, SoloGroup()))
    assert estimated(spec) == pytest.approx(measured, rel=TOLERANCE)


@pytest.mark.parametrize("kind", ["sgd", "nadam", "rmsprop", "adafactor"])
def test_the_state_of_each_optimizer(kind: str) -> None:
    """Of a model that is mostly parameters."""
    spec = spec_of(MLP | {"hidden": [256, 256]}, 32, 32, optimizer={"kind": kind})
    assert estimated(spec) == pytest.approx(peak_bytes(lambda: train(spec, SoloGroup())), rel=TOLERANCE)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("checkpointing", ["selective", "full"])
def test_activations_computed_again(checkpointing: str, precision: str) -> None:
    model = GPT | {"layers": 4}
    spec = spec_of(model, 8, 8, precision=precision, parallelism=SINGLE | {"activation_checkpointing": checkpointing})
    measured = peak_bytes(lambda: train(spec, SoloGroup()))
    assert estimated(spec) == pytest.approx(measured, rel=TOLERANCE)
    assert measured < 0.9 * estimated(spec_of(model, 8, 8, precision=precision))  # it must have saved something, or nothing is shown


def trained(world: RankPlace, document: dict[str, Any]) -> int:
    """Return the peak of one rank."""
    spec = JobSpec.model_validate(document)
    axes, reduces = mesh.axis_group_ranks(spec.parallelism.degrees(world.world_size)), spec.communication.algorithms_on(world.device)
    group = join(world, GroupAborter(), axes, reduces=reduces)
    try:
        return peak_bytes(lambda: train(spec, group, world))
    finally:
        group.close()


def fullest(spec: JobSpec) -> int:
    peaks: list[int] = run_ranks(trained, spec.world_size, spec.model_dump(mode="json"))
    return max(peaks)


@pytest.mark.parametrize(("ranks", "batch", "reproducible"), [(2, 4, False), (2, 12, False), (2, 12, True), (3, 8, True)])
def test_replicas(ranks: int, batch: int, reproducible: bool) -> None:
    spec = spec_of(GPT, batch, 2, parallelism={"strategy": "ddp"}, resources={"nodes": ranks}, reproducible=reproducible)
    assert estimated(spec) == pytest.approx(fullest(spec), rel=TOLERANCE)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("axes", [{"tensor": 2}, {"context": 2}])
@pytest.mark.parametrize("batch", [2, 8])
def test_models_that_are_cut(axes: dict[str, int], batch: int, precision: str) -> None:
    spec = spec_of(GPT, batch, 2, parallelism={"strategy": "ddp", **axes}, resources={"nodes": 2}, precision=precision)
    assert estimated(spec) == pytest.approx(fullest(spec), rel=TOLERANCE)


@pytest.mark.parametrize(("servers", "ranks", "batch"), [(1, 2, 4), (1, 3, 8), (2, 4, 12)])
def test_parameter_servers_and_their_workers(servers: int, ranks: int, batch: int) -> None:
    plan = {"strategy": "parameter_server", "servers": servers}
    spec = spec_of(GPT, batch, 2, parallelism=plan, resources={"nodes": ranks}, reproducible=None)
    assert estimated(spec) == pytest.approx(fullest(spec), rel=TOLERANCE)


@pytest.mark.parametrize("compression", ["bf16", "top_k", "power_sgd"])
@pytest.mark.parametrize("batch", [4, 12])
def test_compressed_gradients(compression: str, batch: int) -> None:
    communication = {"compression": compression} | ({} if compression == "bf16" else {"dense_steps": 0})
    spec = spec_of(GPT, batch, 2, parallelism={"strategy": "ddp"}, resources={"nodes": 2}, communication=communication)
    assert 1 - TOLERANCE < estimated(spec) / fullest(spec) < 1.2, (
        "both copies of what is not sent count in every moment: more than there is, not less"
    )


def test_a_large_vocabulary_that_is_cut() -> None:
    plan = {"strategy": "ddp", "tensor": 2}
    spec = spec_of(LARGE_VOCABULARY, 8, 4, parallelism=plan, resources={"nodes": 2})
    assert estimated(spec) == pytest.approx(fullest(spec), rel=TOLERANCE)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="sharded"),
        pytest.param({"reshard_after_forward": False}, id="whole parameters kept"),
        pytest.param({"replicate": 2}, id="replicas of shards"),
        pytest.param({"tensor": 2}, id="cut and sharded"),
        pytest.param({"cpu_offload": True}, id="offloaded"),
        pytest.param({"activation_checkpointing": "full"}, id="computed again"),
        pytest.param({"activation_checkpointing": "selective"}, id="computed again in part"),
    ],
)
def test_shards(changes: dict[str, Any], precision: str) -> None:
    ranks = 2 * changes.get("replicate", 1) * changes.get("tensor", 1)
    plan = {"strategy": "fsdp", **changes}
    spec = spec_of(GPT | {"layers": 4}, 8, 2, parallelism=plan, resources={"nodes": ranks}, precision=precision)
    assert estimated(spec) == pytest.approx(fullest(spec), rel=TOLERANCE)


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("checkpointing", ["none", "full"])
def test_shards_with_gradients_in_the_fixed_tree(checkpointing: str, replicas: int) -> None:
    plan = {"strategy": "fsdp", "shard": 2, "activation_checkpointing": checkpointing}
    spec = spec_of(GPT | {"layers": 4}, 12, 1, parallelism=plan, resources={"nodes": 2 * replicas}, reproducible=True)
    assert estimated(spec) == pytest.approx(fullest(spec), rel=TOLERANCE)


def hf(**config: Any) -> dict[str, Any]:
    return {"kind": "hf", "config": LLAMA | {"num_key_value_heads": 2} | config, "context": 64}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    ("config", "checkpointing"),
    [
        ({"num_key_value_heads": 4}, "none"),
        ({"tie_word_embeddings": True}, "selective"),
        ({"vocab_size": 2000, "hidden_size": 48}, "none"),
        ({"model_type": "mistral"}, "full"),
        ({"model_type": "qwen2"}, "none"),
        ({"model_type": "qwen3", "head_dim": 32}, "none"),
        ({"model_type": "qwen3", "head_dim": 32}, "selective"),
    ],
)
def test_models_of_transformers(config: dict[str, Any], checkpointing: str, precision: str) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    plan = SINGLE | {"activation_checkpointing": checkpointing}
    spec = spec_of(hf(**config), 8, 8, parallelism=plan, precision=precision)
    measured = peak_bytes(lambda: train(spec, SoloGroup()))
    assert estimated(spec) == pytest.approx(measured, rel=TOLERANCE)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    "plan", [{"strategy": "ddp"}, {"strategy": "fsdp"}, {"strategy": "ddp", "tensor": 2}], ids=lambda plan: "-".join(plan)
)
def test_models_of_transformers_over_ranks(plan: dict[str, Any], precision: str) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    spec = spec_of(hf(), 8, 2, parallelism=plan, resources={"nodes": 2}, precision=precision)
    assert estimated(spec) == pytest.approx(fullest(spec), rel=TOLERANCE)
