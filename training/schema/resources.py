"""The `resources` section: the slots of a job, how many nodes, how many ranks on each, and how far both may change. Pure pydantic."""

from __future__ import annotations

from pydantic import Field, model_validator

from paceline.training.schema.amounts import Bytes
from paceline.training.schema.parts import Part, Whole, inconsistent

MOST_NODES = 4096


class Resources(Part):
    """The gang: `nodes * slots_per_node` slots, all or nothing. A slot is a GPU, or one CPU slot on a node without GPUs."""

    nodes: Whole = Field(1, ge=1, le=MOST_NODES)
    slots_per_node: Whole = Field(1, ge=1, le=64)
    min_nodes: Whole | None = Field(
        None,
        ge=1,
        le=MOST_NODES,
        description="how many nodes' worth of ranks a job that closes up starts with and goes on with (default: nodes, and the ranks of one "
        "replica); how many nodes a script starts with, and starts again with when others are lost (default: nodes)",
    )
    max_nodes: Whole | None = Field(
        None,
        ge=1,
        le=MOST_NODES,
        description="a job grows to this size in slots that nobody waits for; a script is started again for that. Default: nodes",
    )

    memory_per_slot: Bytes | None = Field(
        None,
        description="what a rank may hold on its device, in bytes or as 512MiB: strategy auto and micro_batch_size auto keep within it; "
        "default: what the device has",
    )

    @property
    def world_size(self) -> int:
        return self.nodes * self.slots_per_node

    @property
    def most_ranks(self) -> int:
        return (self.max_nodes or self.nodes) * self.slots_per_node

    @property
    def is_elastic(self) -> bool:
        return self.min_nodes not in (None, self.nodes) or self.max_nodes not in (None, self.nodes)

    @model_validator(mode="after")
    def check_node_range(self) -> Resources:
        if self.min_nodes is not None and self.min_nodes > self.nodes:
            raise inconsistent("min_nodes={least} is more than nodes={nodes}", least=self.min_nodes, nodes=self.nodes)
        if self.max_nodes is not None and self.max_nodes < self.nodes:
            raise inconsistent("max_nodes={most} is less than nodes={nodes}", most=self.max_nodes, nodes=self.nodes)
        return self
