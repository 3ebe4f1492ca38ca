"""Job specs as an earlier release has stored them: whoever upgrades has databases full of them, and today's schema must read each as it was meant.

Before a release, PACELINE_WRITE_RELEASE=1 writes down what it stores, into `specs/VERSION.json`, which is not changed any more. Messages of releases are
in `test_releases.py`, whose frames carry specs as documents that nobody reads.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel

from paceline.location import ROOT
from paceline.training.spec.job import JobSpec
from paceline.training.spec.stored import StoredSpec
from paceline.version import version

SPECS = Path(__file__).with_name("specs")
RECORDED = sorted(SPECS.glob("*.json"))
GPT, TEXT = {"kind": "gpt", "layers": 4, "dim": 64}, {"kind": "stdlib_text"}
MLP, DIGITS = {"kind": "mlp", "hidden": [16]}, {"kind": "digits"}
TRAINING = {"steps": 100, "global_batch_size": 32}
TWO, ONE = {"slots": 2}, {"parallelism": {"strategy": "single"}}
#: A part of a document that is there, whatever it says: it is left out where it is at its default.
GIVEN = object()
#: Fields in whose place a stored document has what they stand for.
SPELLED_OUT = {"preset", "num_layers"}


def trained(model: dict[str, Any] = MLP, data: dict[str, Any] = DIGITS, **sections: Any) -> dict[str, Any]:
    return {"model": model, "data": data, "training": TRAINING, **(sections or ONE)}


def of_gpt(**sections: Any) -> dict[str, Any]:
    return trained(GPT, TEXT, **sections)


def scripted(environment: dict[str, Any] | None = None, **script: Any) -> dict[str, Any]:
    return {"script": script or {"path": "/code/train.py"}, "environment": environment or {}}


def beyond_the_examples() -> Iterator[dict[str, Any]]:
    """Yield what no file of `examples/` has: each further choice in one of these documents."""
    for kind, preset in (("mlp", "mlp-large"), ("resnet", "resnet-50")):
        yield trained({"kind": kind, "preset": preset}, DIGITS)
    yield trained({"kind": "hf", "path": "/models/llama", "context": 64}, {"kind": "tokens", "path": "/data/tokens", "sha256": "0" * 64})
    store = {"endpoint": "https://minio.example:9000", "region": "eu-1"}
    yield of_gpt(checkpoint={"directory": "s3://bucket/runs", "options": store}, parallelism={"strategy": "ddp"})
    yield of_gpt(checkpoint={"directory": "/data/runs", "shared": True}, parallelism={"strategy": "ddp"})
    yield trained(GPT, {"kind": "tokens", "path": "az://container/tokens", "options": {"account": "ours"}})
    for kind in ("sgd", "nadam", "rmsprop", "adafactor"):
        yield trained(optimizer={"kind": kind, "lr": 0.01})
    for schedule in ({"kind": "constant", "warmup_steps": 5}, {"kind": "step", "step_size": 10, "gamma": 0.5}):
        yield trained(schedule=schedule)
    yield trained(schedule={"kind": "warm_restarts", "cycle_steps": 10, "cycle_growth": 2})
    yield from _on_many_ranks()
    yield from _with_faults()
    yield from _of_ones_own()


def _on_many_ranks() -> Iterator[dict[str, Any]]:
    for algorithm in ("auto", "ring", "hierarchical"):
        yield trained(resources=TWO, communication={"algorithm": algorithm}, parallelism={"strategy": "ddp"})
    for compression in ({"compression": "auto"}, {"compression": "bf16"}, {"compression": "fp16"}, {"compression": "power_sgd", "rank": 4}):
        yield trained(resources=TWO, communication=compression, parallelism={"strategy": "ddp"})
    yield trained(resources=TWO, communication={"compression": "top_k", "threshold": "exact"}, parallelism={"strategy": "ddp"})
    for precision in ("bf16", "fp16"):
        yield of_gpt(resources=TWO, precision=precision, parallelism={"strategy": "fsdp", "activation_checkpointing": "full"})
    for schedule in ("gpipe", "interleaved_1f1b", "zero_bubble", "zero_bubble_v"):
        stages = {"stages_per_rank": 2} if schedule in ("interleaved_1f1b", "zero_bubble_v") else {}
        yield of_gpt(resources=TWO, parallelism={"strategy": "ddp", "pipeline": 2, "pipeline_schedule": schedule, **stages})
    yield of_gpt(resources=TWO, parallelism={"strategy": "ddp", "pipeline": 2, "stages_by": "time"})
    yield of_gpt(resources={"nodes": 4, "slots_per_node": 2, "spread": True}, parallelism={"strategy": "fsdp", "tensor": 2, "replicate": 2})
    yield trained(
        resources={"slots": 4, "min_slots": 2, "max_slots": 8, "device": "cuda", "labels": {"zone": "a"}, "tolerations": ["spot"]}
    )
    yield of_gpt(resources={"device": "cpu", "memory_per_slot": "2GiB"}, time_limit="1h30m", priority=90, labels={"team": "vision"})


def _with_faults() -> Iterator[dict[str, Any]]:
    for choice in ("skip_update", "roll_back", "stop"):
        yield trained(fault_tolerance={"on_nan": choice, "on_spike": choice, "spares": 1}, resources=TWO, parallelism={"strategy": "ddp"})
    yield trained(fault_tolerance={"recovery": "restart", "max_restarts": 0, "hang_seconds": 30})
    yield trained(training=TRAINING | {"pause_at_steps": [10, 20]}, reproducible=True, compile=True)
    yield trained(gradients={"steps": [1, 10], "every": 20, "bins": 32, "snapshots": True}, profile={"first_step": 5, "steps": 3})


def _of_ones_own() -> Iterator[dict[str, Any]]:
    yield {"entrypoint": "task:make_task", "training": TRAINING, "environment": {"working_directory": "/code"}}
    yield scripted({"working_directory": "/code", "variables": {"LR": "0.1"}}, path="train.py", args=["--epochs", 3], grace_seconds="2m")
    yield scripted(module="project.train", saves_on_sigterm=True, virtual_local_rank=True)
    yield scripted({"secrets": ["HF_TOKEN"]}, command="bash -c 'exec python train.py'")
    yield scripted({"requirements": ["torch==2.9.0", "einops"], "own_torch": True})
    yield scripted({"python": "/opt/venv/bin/python"})
    yield scripted({"image": "docker.io/pytorch/pytorch:2.9.0", "mounts": ["/data:/data:ro"]})


def stored_today() -> list[dict[str, Any]]:
    """The documents that today's coordinator stores: of every example, and of what no example shows."""
    submitted = [yaml.safe_load(path.read_text()) for path in sorted((ROOT / "examples").glob("*.yaml"))]
    submitted += [{"name": f"job-{number}", **document} for number, document in enumerate(beyond_the_examples())]
    return [StoredSpec.of(JobSpec.model_validate(document)).document for document in submitted]


def choices(kind: type[BaseModel], found: dict[tuple[str, str], tuple[object, ...]]) -> dict[tuple[str, str], tuple[object, ...]]:
    """Collect, by the model and the name of its field, the values of each choice of the schema, and GIVEN for what a document may lack."""
    for name, field in kind.model_fields.items():
        if (kind.__name__, name) in found:
            continue
        found[kind.__name__, name] = (GIVEN,) if field.exclude_if is not None else ()
        for each in _types_in(field.annotation):
            if get_origin(each) is Literal:
                found[kind.__name__, name] += get_args(each)
            elif isinstance(each, type) and issubclass(each, BaseModel):
                choices(each, found)
    return found


def _types_in(annotation: Any) -> Iterator[Any]:
    yield annotation
    if get_origin(annotation) is not Literal:
        for each in get_args(annotation):
            yield from _types_in(each)


def made(part: BaseModel) -> Iterator[tuple[str, str, object]]:
    """Yield (model, field, value) of all that a spec says, and GIVEN for what it says although it may lack it."""
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        if field.exclude_if is not None and not field.exclude_if(value):
            yield type(part).__name__, name, GIVEN
        if isinstance(value, BaseModel):
            yield from made(value)
        elif value.__hash__ is not None:
            yield type(part).__name__, name, value


def changed(before: Any, now: Any, at: str = "") -> list[str]:
    """Where `now` lacks what `before` has, or says something else."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        return [place for key, value in before.items() for place in changed(value, now.get(key, GIVEN), f"{at}.{key}")]
    return [] if before == now and type(before) is type(now) else [at]


def test_what_a_release_stores_is_written_down() -> None:
    file = SPECS / f"{version()}.json"
    if os.environ.get("PACELINE_WRITE_RELEASE"):
        file.write_text("[\n" + ",\n".join(json.dumps(document, sort_keys=True) for document in stored_today()) + "\n]\n")
    assert file.exists(), "PACELINE_WRITE_RELEASE=1 writes down what this version stores"


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
def test_a_spec_that_a_release_has_stored_is_read_as_it_was_meant(file: Path) -> None:
    for document in json.loads(file.read_text()):
        stored = StoredSpec(document)
        assert stored.readable is not None, f"{document['name']} of {file.stem} is not read any more: {stored.why_unreadable}"
        assert changed(document, stored.readable.model_dump(mode="json")) == [], f"{document['name']} of {file.stem} means something else"


def test_every_choice_of_the_schema_is_among_what_is_written_down() -> None:
    said = {each for document in stored_today() for each in made(JobSpec.model_validate(document))}
    wanted = {(*field, value) for field, values in choices(JobSpec, {}).items() for value in values if field[1] not in SPELLED_OUT}
    assert sorted(wanted - said, key=str) == []


def test_a_value_that_is_gone_or_another_shows() -> None:
    assert changed({"a": {"b": 1}, "c": [1], "d": 1}, {"a": {}, "c": [2], "d": 1.0, "e": 1}) == [".a.b", ".c", ".d"]
