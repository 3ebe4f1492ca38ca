"""`strategy: auto` of a job: what may be chosen, and the spec with the choice in the place of what was left open. Pure.

Whether jobs can have a plan is asked of the spec's own validator: what opens there is chosen from here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

from pydantic import ValidationError

from paceline.parallelism.model_shape import Kernels, NumberFormats
from paceline.parallelism.plan import AXES
from paceline.parallelism.planning.auto import Choice, PlanRequest, SupportedPlans, choose
from paceline.parallelism.planning.machines import Machines
from paceline.parallelism.planning.memory import Checkpointing, TrainingSetup
from paceline.training.spec import derived
from paceline.training.spec.derived import known_shape
from paceline.training.spec.job import JobSpec
from paceline.training.spec.workload import BuiltinWorkload


def chosen(spec: JobSpec, machines: Machines, kernels: Kernels, most_told: int) -> tuple[Choice, int]:
    """Return (the choice with the first `most_told` rejected plans, the number of rejected plans). Raises ValueError where no plan fits."""
    choice = choose(wanted_of(spec, kernels), machines, supported_of(spec))
    return replace(choice, rejected=choice.rejected[:most_told]), len(choice.rejected)


def wanted_of(spec: JobSpec, kernels: Kernels) -> PlanRequest:
    """Return the request for a plan of a spec with `strategy: auto`.

    Options that the spec gives by name are fixed; the defaults of options that it does not mention are not.
    """
    workload, shape = spec.workload, known_shape(spec, NumberFormats(spec.precision, kernels))
    assert isinstance(workload, BuiltinWorkload)  # strategy auto is refused for all others, and for models of unknown shape
    assert shape is not None
    parallelism, resources = spec.parallelism, spec.resources
    given = workload.training.micro_batch_size
    elastic = (derived.min_ranks(spec), resources.most_ranks) if resources.is_elastic else ()
    return PlanRequest(
        shape=shape,
        global_batch_size=workload.training.global_batch_size,
        optimizer=spec.optimizer.kind,
        precision=spec.precision,
        reproducible=spec.reproducible,
        micro_batch_size=given if isinstance(given, int) else None,
        reshard_after_forward=parallelism.reshard_after_forward,
        cpu_offload=parallelism.cpu_offload and kernels.beside_host,
        degrees={axis: getattr(parallelism, axis) for axis in AXES if getattr(parallelism, axis) and axis in parallelism.model_fields_set},
        also_replicas=elastic,
    )


def supported_of(spec: JobSpec) -> SupportedPlans:
    """A job that may change its size while it runs needs a plan that holds at every size, which only replicas do."""
    parallelism = spec.parallelism
    open_ = "activation_checkpointing" not in parallelism.model_fields_set
    return SupportedPlans(
        axes=("replicate",) if spec.resources.is_elastic else AXES,
        activation_checkpointing=get_args(Checkpointing) if open_ else (parallelism.activation_checkpointing,),
        permits=lambda setup: permitted(spec, setup),
    )


def permitted(spec: JobSpec, setup: TrainingSetup) -> bool:
    try:
        written(spec, setup)
    except ValidationError:
        return False
    return True


def written(spec: JobSpec, setup: TrainingSetup) -> JobSpec:
    """The spec with this plan in it, for as many slots as the plan takes. Raises ValidationError where jobs cannot have it."""
    document = spec.model_dump(exclude_unset=True)
    parallelism = document["parallelism"] | _axes(setup) | {"activation_checkpointing": setup.activation_checkpointing}
    training = (
        document["training"] if derived.searches_micro_batch(spec) else document["training"] | {"micro_batch_size": setup.micro_batch_size}
    )
    blocks = max(1, setup.degrees.world_size // spec.resources.slots_per_block)
    resources = document.get("resources", {}) | ({spec.resources.unit: blocks} if blocks != spec.resources.blocks else {})
    return JobSpec.model_validate(document | {"parallelism": parallelism, "training": training, "resources": resources})


def with_micro_batch(spec: JobSpec, size: int) -> JobSpec:
    """Return the spec with this micro-batch size. Raises ValidationError where the world has no use for it."""
    document = spec.model_dump(exclude_unset=True)
    return JobSpec.model_validate(document | {"training": document["training"] | {"micro_batch_size": size}})


def _axes(setup: TrainingSetup) -> dict[str, Any]:
    """What follows from the world by itself is left to it, so that the job can be given another size."""
    degrees = setup.degrees
    replicas = degrees.shard > 1 and degrees.replicate > 1
    return {
        "strategy": "fsdp" if degrees.shard > 1 else "ddp",
        "replicate": None,
        "shard": degrees.shard if replicas else None,
        "tensor": degrees.tensor,
        "pipeline": degrees.pipeline,
        "context": degrees.context,
    }


def asked(spec: JobSpec) -> list[str]:
    """Return the options of the plan that the user wrote, one a line, for example `parallelism.strategy: auto`."""
    given = spec.parallelism.model_dump(exclude_unset=True)
    micro_batch = derived.training_of(spec).micro_batch_size
    lines = [f"parallelism.{name}: {value}" for name, value in given.items() if value is not None]
    return [*lines, *([f"training.micro_batch_size: {micro_batch}"] if micro_batch is not None else [])]
