"""The jobs that MOCK_DB shows: every kind of plan and workload, at every stage, with faults; and an experiment. Plain documents, as users submit them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Document = dict[str, Any]


@dataclass(frozen=True)
class DemoAction:
    """An act of a job's user, once the job has come to `step`."""

    step: int
    act: Literal["pause", "cancel", "resize"]
    nodes: int | None = None


@dataclass(frozen=True)
class DemoJob:
    owner: str
    spec: Document
    deeds: tuple[DemoAction, ...] = ()


@dataclass(frozen=True)
class DemoExperiment:
    owner: str
    spec: Document


def _gpt(layers: int, heads: int, dim: int, context: int) -> Document:
    return {"kind": "gpt", "layers": layers, "heads": heads, "dim": dim, "context": context, "vocab_size": 50304}


def _job(
    name: str, nodes: int, slots: int, model: Document, steps: int, batch: int, micro_batch: int, *, project: str = "language", **more: Any
) -> Document:
    length = {"steps": steps, "global_batch_size": batch, "micro_batch_size": micro_batch, "eval_every_steps": 50}
    data = {"kind": "stdlib_text"} if model["kind"] in ("gpt", "hf") else {"kind": "cifar10", "path": "/datasets/cifar-10"}
    return {
        "name": name,
        "project": project,
        "resources": {"nodes": nodes, "slots_per_node": slots, **more.pop("resources", {})},
        "model": model,
        "data": data,
        "precision": "bf16",
        "schedule": {"warmup_steps": 20},
        "training": length,
        "checkpoint": {"every_steps": 50},
        **more,
    }


def _faults(*words: str) -> Document:
    return {"variables": {"SIMULATED_FAULTS": ",".join(words)}}


_SMALL, _MEDIUM, _LARGE = _gpt(12, 12, 768, 1024), _gpt(24, 16, 2048, 2048), _gpt(32, 32, 4096, 4096)
_RESNET = {"kind": "resnet", "depth": 56}

#: One job of each kind of workload and communication that the others leave out.
_OTHER_KINDS: tuple[DemoJob, ...] = (
    DemoJob(
        "alan",
        _job(
            "gpt-small-compressed",
            2,
            2,
            _SMALL,
            9_000,
            128,
            16,
            resources={"spread": True},
            communication={"algorithm": "hierarchical", "compression": "top_k"},
        ),
    ),
    DemoJob(
        "ada",
        _job(
            "llama-of-transformers",
            1,
            4,
            {
                "kind": "hf",
                "context": 1024,
                "config": {
                    "model_type": "llama",
                    "vocab_size": 32000,
                    "hidden_size": 768,
                    "num_hidden_layers": 12,
                    "num_attention_heads": 12,
                },
            },
            6_000,
            64,
            8,
        ),
    ),
    DemoJob(
        "grace",
        {
            "name": "digits-with-a-server",
            "project": "vision",
            "resources": {"slots": 3},
            "model": {"kind": "mlp", "hidden": [128, 128]},
            "data": {"kind": "digits"},
            "parallelism": {"strategy": "parameter_server"},
            "training": {"epochs": 200, "global_batch_size": 64},
        },
    ),
    DemoJob(
        "alan",
        {
            "name": "a-task-of-my-own",
            "project": "vision",
            "resources": {"nodes": 1, "slots_per_node": 2},
            "entrypoint": "digits_task:make_task",
            "environment": {"working_directory": "/home/alan"},
            "training": {"steps": 5_000, "global_batch_size": 64},
        },
    ),
)

JOBS: tuple[DemoJob, ...] = (
    *_OTHER_KINDS,  # first: lists begin with what was submitted last
    DemoJob("ada", _job("gpt-7b-pretraining", 16, 8, _LARGE, 20_000, 512, 1, parallelism={"strategy": "fsdp", "shard": 8})),
    DemoJob("ada", _job("gpt-7b-tensor", 8, 8, _LARGE, 10_000, 128, 1, parallelism={"tensor": 8})),
    DemoJob("grace", _job("gpt-7b-pipeline", 4, 8, _LARGE, 8_000, 128, 1, parallelism={"pipeline": 8})),
    DemoJob("grace", _job("gpt-1b-long-context", 2, 8, _gpt(24, 16, 2048, 16384), 8_000, 32, 1, parallelism={"context": 8})),
    DemoJob("alan", _job("gpt-1b-fsdp", 4, 8, _MEDIUM, 6_000, 256, 8, parallelism={"strategy": "fsdp"})),
    DemoJob(
        "alan",
        _job("gpt-small-elastic", 3, 8, _SMALL, 12_000, 768, 8, resources={"min_nodes": 2, "max_nodes": 6}),
        (DemoAction(150, "resize", 4),),
    ),
    DemoJob(
        "alan",
        _job(
            "gpt-small-with-spares",
            2,
            8,
            _SMALL,
            12_000,
            512,
            16,
            environment=_faults("crash@60:5", "crash@400:2"),
            fault_tolerance={"spares": 1},
        ),
    ),
    DemoJob("grace", _job("stuck-rank", 2, 8, _SMALL, 9_000, 512, 16, environment=_faults("hang@90:3"))),
    DemoJob("grace", _job("loss-is-nan", 1, 8, _SMALL, 9_000, 512, 16, environment=_faults("nan@70"))),
    DemoJob(
        "grace",
        _job("wrong-vocabulary", 1, 8, _SMALL, 3_000, 512, 16, environment=_faults("exception@40:6"), fault_tolerance={"max_restarts": 0}),
    ),
    DemoJob("alan", _job("too-large-for-its-cards", 1, 8, _LARGE, 3_000, 64, 8, fault_tolerance={"max_restarts": 0})),
    DemoJob("alan", _job("paused-for-the-night", 2, 8, _SMALL, 9_000, 512, 16), (DemoAction(80, "pause"),)),
    DemoJob("grace", _job("a-mistake", 1, 8, _SMALL, 9_000, 512, 16), (DemoAction(30, "cancel"),)),
    DemoJob("ada", _job("needs-a-larger-cluster", 80, 8, _MEDIUM, 3_000, 5_120, 4)),
    DemoJob(
        "alan",
        {
            "name": "torchrun-script",
            "project": "scripts",
            "resources": {"nodes": 2, "slots_per_node": 8},
            "script": {"path": "/home/alan/train.py", "args": ["--lr", "0.1"], "saves_on_sigterm": True},
        },
    ),
    *(
        DemoJob(
            "grace",
            _job(
                f"resnet-56-lr-{number}",
                1,
                4,
                _RESNET,
                260,
                512,
                64,
                project="sweep",
                optimizer={"kind": "sgd", "lr": rate},
                labels={"sweep": "lr"},
            ),
        )
        for number, rate in enumerate((0.4, 0.1, 0.025), 1)
    ),
)

#: Its trials wait for each other, so that most of the free cards are left to visitors.
EXPERIMENTS: tuple[DemoExperiment, ...] = (
    DemoExperiment(
        "grace",
        {
            "name": "ddp-or-fsdp",
            "project": "language",
            "description": "A small GPT on one node and on two, with whole replicas and with sharded ones",
            "job": {
                key: value for key, value in _job("trial", 1, 8, _SMALL, 40, 256, 16).items() if key not in ("name", "project", "resources")
            },
            "world_sizes": [8, 16],
            "grid": {"parallelism.strategy": ["ddp", "fsdp"]},
            "baseline": True,
            "repeats": 3,
            "at_once": 2,
        },
    ),
)
