"""How a job's world is cut: its strategy and the sizes of the mesh's axes. Pure pydantic, no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from parallelism.plan import Degrees, degrees
from training.spec_parts import Part, PositiveInt, inconsistent, not_available_yet

#: What means something to `fsdp` only, and the values that it may have anyway: where nobody says otherwise, or in specs of earlier versions.
OF_SHARDING: dict[str, tuple[object, ...]] = {
    "replicate": (None,),
    "shard": (None, 1),
    "reshard_after_forward": (True,),
    "cpu_offload": (False,),
}


class Parallelism(Part):
    """`single` is one process; `ddp` replicates the model on every slot; `fsdp` cuts it into `shard` parts, on each of `replicate` replicas
    (HSDP where there are several). `auto` and the other degrees belong to later versions."""

    strategy: Literal["single", "ddp", "fsdp", "auto"] = "ddp"
    replicate: PositiveInt | None = Field(None, description="fsdp: replicas of the whole model; default: one, or what shard leaves")
    shard: PositiveInt | None = Field(None, description="fsdp: ranks that hold one replica in parts; default: all that replicate leaves")
    tensor: PositiveInt = 1
    pipeline: PositiveInt = 1
    context: PositiveInt = 1
    reshard_after_forward: bool = Field(
        True, description="fsdp: false keeps whole parameters from forward to backward: more memory, less traffic (ZeRO-2)"
    )
    cpu_offload: bool = Field(
        False, description="fsdp: parameters, gradients and optimizer state stay in the host's memory, and are updated there"
    )
    activation_checkpointing: Literal["none", "selective", "full"] = Field(
        "none",
        description="activations of the model's blocks that backward computes again: all (full), or only what is cheap to compute (selective)",
    )

    @property
    def shards(self) -> bool:
        return self.strategy == "fsdp"

    def degrees(self, world_size: int) -> Degrees:
        """Raises WorldSizeMismatchError."""
        return degrees(self.strategy, world_size, replicate=self.replicate, shard=self.shard)

    @model_validator(mode="after")
    def implemented(self) -> Parallelism:
        if self.strategy == "auto":
            raise not_available_yet("parallelism.strategy", self.strategy, "use single, ddp or fsdp")
        for axis in ("tensor", "pipeline", "context"):
            if getattr(self, axis) != 1:
                raise not_available_yet(f"parallelism.{axis}", getattr(self, axis), "leave it at 1")
        return self

    @model_validator(mode="after")
    def only_what_shards(self) -> Parallelism:
        for name, harmless in OF_SHARDING.items():
            value = getattr(self, name)
            if not self.shards and value not in harmless:
                raise inconsistent(
                    "parallelism.{name}={value} is for strategy fsdp, not {strategy}; leave it out, or use fsdp",
                    name=name,
                    value=str(value).lower(),
                    strategy=self.strategy,
                )
        return self
