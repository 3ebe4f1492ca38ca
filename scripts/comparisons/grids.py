"""The experiments that the benchmark scripts post, as documents. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Document = dict[str, Any]
Scaling = Literal["strong", "weak"]

#: Small enough for a CPU slot, and large enough to occupy a GPU. Both train on data that every machine has.
MODELS: Mapping[tuple[str, bool], Mapping[str, Any]] = {
    ("resnet", False): {"kind": "resnet", "depth": 8, "width": 8},
    ("resnet", True): {"kind": "resnet", "preset": "resnet-50"},
    ("gpt", False): {"kind": "gpt", "layers": 2, "heads": 4, "dim": 128, "context": 128},
    ("gpt", True): {"kind": "gpt", "layers": 12, "heads": 12, "dim": 768, "context": 1024},
}
DATA: Mapping[str, Mapping[str, Any]] = {"resnet": {"kind": "digits"}, "gpt": {"kind": "stdlib_text"}}
OPTIMIZERS: Mapping[str, Mapping[str, Any]] = {
    "resnet": {"kind": "sgd", "lr": 0.01, "momentum": 0.9},
    "gpt": {"kind": "adamw", "lr": 1e-3},
}
#: The plans of the distributed suite, as columns: each is a way to use two ranks or more.
PLANS: Mapping[str, Sequence[Any]] = {
    "parallelism.strategy": ["ddp", "fsdp", "ddp", "ddp"],
    "parallelism.tensor": [1, 1, 2, 1],
    "parallelism.pipeline": [1, 1, 1, 2],
}


@dataclass(frozen=True)
class Length:
    steps: int
    repeats: int


def job(model: str, length: Length, *, on_gpus: bool, precision: str | None = None) -> Document:
    """Return the job spec that all trials begin with."""
    document = {
        "model": dict(MODELS[model, on_gpus]),
        "data": dict(DATA[model]),
        "optimizer": dict(OPTIMIZERS[model]),
        "training": {"steps": length.steps, "eval_every_steps": None},
        "checkpoint": {"every_steps": None},
    }
    return document | ({"precision": precision} if precision else {})


def benchmark(
    name: str,
    base: Document,
    length: Length,
    *,
    gpus: Sequence[int],
    strategies: Sequence[str],
    batch_sizes: Sequence[int],
    scaling: Scaling,
) -> Document:
    """Return the experiment of `run_benchmark.py`: numbers of ranks x strategies x batch sizes. `weak`: a batch size is that of one rank.

    A rank of the largest world computes its share at once; those of smaller worlds compute as large micro-batches, or the comparison would be one
    of micro-batches."""
    shares = [size if scaling == "weak" else max(1, size // max(gpus)) for size in batch_sizes]
    return {
        "name": name,
        "description": f"{'Weak' if scaling == 'weak' else 'Strong'} scaling: ranks x strategies x batch sizes",
        "job": base,
        "world_sizes": list(gpus),
        "scaling": scaling,
        "grid": {"parallelism.strategy": list(strategies)},
        "zip": [{"training.global_batch_size": list(batch_sizes), "training.micro_batch_size": shares}],
        "repeats": length.repeats,
        "at_once": 1,
    }


def distributed_suite(name: str, base: Document, length: Length, *, world_sizes: Sequence[int], batch_size: int) -> Document:
    """Return the experiment of `run_distributed_benchmarks.py`: every plan on every number of ranks, beside one process on the same batches."""
    training = {**base["training"], "global_batch_size": batch_size, "micro_batch_size": max(1, batch_size // 8)}
    return {
        "name": name,
        "description": "Replicas, shards, tensor parts and pipeline stages beside one process: speed, communication, memory, convergence",
        "job": {**base, "training": training},
        "world_sizes": list(world_sizes),
        "zip": [{path: list(values) for path, values in PLANS.items()}],
        "baseline": True,
        "repeats": length.repeats,
        "at_once": 1,
    }


@dataclass(frozen=True)
class Unfit:
    """A number of ranks that there are no slots for."""

    ranks: int
    why: str


def fitting(document: Document, slots: int) -> tuple[Document, list[Unfit]]:
    """Return the experiment with the numbers of ranks that `slots` slots can hold, and the others, which would wait for ever."""
    fits = [ranks for ranks in document["world_sizes"] if ranks <= slots]
    unfit = [
        Unfit(ranks, f"needs {ranks} slots, and there {'is' if slots == 1 else 'are'} {slots}")
        for ranks in document["world_sizes"]
        if ranks > slots
    ]
    return {**document, "world_sizes": fits}, unfit
