"""The `parallelism` section: how a job's ranks are arranged, by its strategy and the sizes of the mesh's axes. Pure pydantic, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field, model_validator

from paceline.parallelism.pipelines.schedules import SCHEDULES, ScheduleError, ScheduleName
from paceline.parallelism.plan import Degrees, WorldSizeMismatchError, degrees, in_words
from paceline.training.schema.parts import Part, Ranks, inconsistent

#: Other names of the mesh's axes, which torchtitan and others use. A spec may be written with either; it is kept and shown with ours.
AXIS_ALIASES = {"dp_replicate": "replicate", "dp_shard": "shard", "cp": "context", "tp": "tensor", "pp": "pipeline"}

#: What means something to `fsdp` only, and the values that it may have anyway: where nobody says otherwise, or in specs of earlier versions.
OF_SHARDING: dict[str, tuple[object, ...]] = {
    "replicate": (None,),
    "shard": (None, 1),
    "reshard_after_forward": (True,),
    "cpu_offload": (False,),
}


#: The same for what has a pipeline.
OF_PIPELINES: dict[str, tuple[object, ...]] = {
    "pipeline_schedule": ("1f1b",),
    "stages_per_rank": (None, 1),
    "stages_by": ("operations",),
}

#: The same for what has parameter servers.
OF_SERVERS: dict[str, tuple[object, ...]] = {"servers": (1,)}
#: The most parameter servers of a job. Each holds at least one tensor of the model.
MOST_SERVERS = 1024


#: On one rank: a model has no more blocks.
MOST_STAGES = 1024


def _axis(default: int | None, alias: str, description: str) -> Any:
    """A field for an axis of the mesh. `x-alias` tells readers of the JSON Schema its other name."""
    return Field(default, description=f"{description} Also written {alias}.", json_schema_extra={"x-alias": alias})


class Parallelism(Part):
    """`single` is one process; `ddp` replicates the model on every slot; `fsdp` cuts it into `shard` parts, on each of `replicate` replicas
    (HSDP where there are several). `tensor` and `context` multiply either: one replica, or one part of it, then takes that many slots.
    So does `pipeline`: what is replicated, or sharded, is then each stage of a pipeline of so many ranks. `auto`: the coordinator chooses, and puts its choice
    in the place of whatever is not given here. `parameter_server`: `servers` ranks hold the optimizer's state and update the parameters, with
    the gradients that the other ranks compute and push to them."""

    strategy: Literal["single", "ddp", "fsdp", "parameter_server", "auto"] = "ddp"
    servers: Ranks = Field(
        1,
        le=MOST_SERVERS,
        description="parameter_server: number of ranks that hold and update parameters. They compute no batches.",
    )
    replicate: Ranks | None = _axis(None, "dp_replicate", "fsdp: replicas of the whole model. Default: one, or what shard leaves.")
    shard: Ranks | None = _axis(None, "dp_shard", "fsdp: ranks that hold one replica in parts. Default: all that replicate leaves.")
    tensor: Ranks = _axis(
        1, "tp", "Ranks that share each matrix of the model: gpt (with the sequence split between them) and hf (by the model's own plan)."
    )
    pipeline: Ranks = _axis(
        1, "pp", "Ranks that the model's layers are split over, in stages. Micro-batches pass through one after the other."
    )
    context: Ranks = _axis(1, "cp", "Ranks that share each sequence and attend to all of it (gpt).")
    pipeline_schedule: ScheduleName = Field("1f1b", description="pipeline: order of forward and backward passes on a rank.")
    stages_per_rank: Ranks | None = Field(
        None, le=MOST_STAGES, description="pipeline: stages on each rank, for schedules that take several. Default: the fewest."
    )
    stages_by: Literal["operations", "time"] = Field(
        "operations",
        description="pipeline: balance stages by counted operations, or by time measured on rank 0 at the start.",
    )
    reshard_after_forward: bool = Field(
        True, description="fsdp: free whole parameters after forward. False uses more memory and less traffic (ZeRO-2)."
    )
    cpu_offload: bool = Field(False, description="fsdp: keep and update parameters, gradients and optimizer state in the host's memory.")
    activation_checkpointing: Literal["none", "selective", "full"] = Field(
        "none",
        description="Recompute activations in backward to save memory. full: all of each block. selective: only what is cheap to compute.",
    )

    @property
    def shards(self) -> bool:
        return self.strategy == "fsdp"

    @property
    def has_servers(self) -> bool:
        return self.strategy == "parameter_server"

    @property
    def is_auto(self) -> bool:
        return self.strategy == "auto"

    @property
    def is_model_parallel(self) -> bool:
        """Whether several ranks compute a micro-batch together, along the tensor, context or pipeline axis."""
        return self.tensor * self.context * self.pipeline > 1

    @property
    def model_parallel_sizes(self) -> str:
        """As in "context=2 x tensor=4"."""
        return in_words(Degrees(tensor=self.tensor, context=self.context, pipeline=self.pipeline))

    @property
    def stages_on_each_rank(self) -> int:
        return self.stages_per_rank or SCHEDULES[self.pipeline_schedule].fewest_chunks

    @property
    def stages(self) -> int:
        return self.pipeline * self.stages_on_each_rank

    def degrees(self, world_size: int) -> Degrees:
        """Return the sizes of the mesh's axes for a world of this size. Raises WorldSizeMismatchError."""
        return degrees(
            self.strategy,
            world_size,
            replicate=self.replicate,
            shard=self.shard,
            tensor=self.tensor,
            pipeline=self.pipeline,
            context=self.context,
            servers=self.servers,
        )

    @property
    def in_parts(self) -> bool:
        """Whether the model is changed for its world, and a rank may hold only a part of the state: it lives through one generation."""
        return self.shards or self.is_model_parallel

    @property
    def spreads_state(self) -> bool:
        """Whether a lost rank may take a part of the state with it, which then comes from a checkpoint."""
        return self.in_parts or self.has_servers

    @property
    def has_fixed_partition(self) -> bool:
        """Whether the same place in a world as large holds the same part of the state in every generation: stages cut by measured time may
        not."""
        return self.pipeline == 1 or self.stages_by == "operations"

    def misfit(self, ranks: int) -> str | None:
        """Why the axes of the mesh do not come to this many ranks."""
        try:
            sizes = self.degrees(ranks)
        except WorldSizeMismatchError as error:
            return str(error)
        if self.cpu_offload and sizes.shard == 1:
            return f"cpu_offload=true is for models in parts, but with {ranks} ranks each has all of it; leave it out, or use more ranks"
        return None

    def largest(self, most: int, least: int = 1) -> int:
        """The largest of the worlds of `least` to `most` ranks that it fits; 0: it fits none."""
        return next((ranks for ranks in range(most, least - 1, -1) if self.misfit(ranks) is None), 0)

    def ranks_of_replica(self, world_size: int) -> int:
        """How many ranks hold the whole state between them, each as much of it as in a world of this size."""
        whole = self.degrees(world_size)
        if self.has_servers:
            return self.servers + 1
        ranks = world_size // whole.replicate
        alone = self.misfit(ranks) is None and self.degrees(ranks) == replace(whole, replicate=1)
        return ranks if alone else world_size

    @model_validator(mode="before")
    @classmethod
    def check_axis_names(cls, given: Any) -> Any:
        """The document with each axis under its own name. Raises an inconsistency where an axis is given under both."""
        if not isinstance(given, Mapping):
            return given
        for alias, name in AXIS_ALIASES.items():
            if alias in given and name in given:
                raise inconsistent(
                    "parallelism.{alias} and parallelism.{name} are two names of one axis: give one of them", alias=alias, name=name
                )
        return {AXIS_ALIASES.get(name, name): value for name, value in given.items()}

    @model_validator(mode="after")
    def check_sharding_options(self) -> Parallelism:
        for name, harmless in OF_SHARDING.items():
            value = getattr(self, name)
            if not (self.shards or self.is_auto) and value not in harmless:
                raise inconsistent(
                    "parallelism.{name}={value} is for strategy fsdp, not {strategy}; leave it out, or use fsdp",
                    name=name,
                    value=str(value).lower(),
                    strategy=self.strategy,
                )
        return self

    @model_validator(mode="after")
    def check_pipeline_options(self) -> Parallelism:
        for name, harmless in OF_PIPELINES.items():
            value = getattr(self, name)
            if self.pipeline == 1 and value not in harmless:
                raise inconsistent(
                    "parallelism.{name}={value} is for pipelines; leave it out, or set parallelism.pipeline", name=name, value=value
                )
        return self

    @model_validator(mode="after")
    def check_server_options(self) -> Parallelism:
        for name, harmless in OF_SERVERS.items():
            value = getattr(self, name)
            if not self.has_servers and value not in harmless:
                raise inconsistent(
                    "parallelism.{name}={value} is for strategy parameter_server, not {strategy}; leave it out, or use parameter_server",
                    name=name,
                    value=value,
                    strategy=self.strategy,
                )
        if self.has_servers and self.is_model_parallel:
            raise inconsistent(
                "strategy parameter_server with {cut} is not offered: a worker computes whole micro-batches, and pushes whole gradients; leave "
                "them at 1, or use ddp or fsdp beside them",
                cut=self.model_parallel_sizes,
            )
        return self

    @model_validator(mode="after")
    def check_pipeline_schedule(self) -> Parallelism:
        if self.pipeline == 1:
            return self
        if self.shards and SCHEDULES[self.pipeline_schedule].splits_backward:
            raise inconsistent(
                "parallelism.pipeline_schedule={schedule} with strategy fsdp is not offered: it takes the gradients of weights one group at a time, "
                "and FSDP cuts and frees them as one backward pass ends; use gpipe, 1f1b or interleaved_1f1b, or ddp",
                schedule=self.pipeline_schedule,
            )
        try:
            SCHEDULES[self.pipeline_schedule](ranks=self.pipeline, micro_batches=1, chunks=self.stages_on_each_rank)
        except ScheduleError as error:
            raise inconsistent("parallelism.stages_per_rank: {error}", error=str(error)) from None
        return self


#: Any number of ranks, each with all of the state.
REPLICAS = Parallelism()
