"""The `resources` section: the slots of a job, on which nodes they may be, and how far their number may change. Pure pydantic.

A gang consists of equal blocks of slots, each on one node: `nodes` blocks of `slots_per_node` slots, or `slots` blocks of one.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from paceline.training.schema.amounts import Bytes
from paceline.training.schema.parts import Part, Ranks, Text, Whole, at_most, inconsistent
from paceline.training.schema.spelling import SpellingRule

MOST_NODES = 4096
MOST_LABELS = 64

_KEY = r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?"
_KEY_RULE = "1 to 63 letters, digits, '.', '_', '/' and '-'; first and last a letter or digit"
#: A key of a node's label or taint. `worker --label` and `--taint` take them too.
NODE_KEY = SpellingRule(rf"^{_KEY}$", _KEY_RULE, "zone")
NodeKey = Annotated[str, NODE_KEY]
LONGEST_NODE_VALUE = 253


def unprintable(text: str) -> str | None:
    """The first character that no table or log can show, such as a line break or a mark that turns the direction of writing; None: there is none."""
    return next((sign for sign in text if not sign.isprintable()), None)


def _printable(text: str) -> str:
    if (sign := unprintable(text)) is not None:
        context = {"sign": repr(sign).strip("'"), "place": text.index(sign)}
        raise PydanticCustomError("unprintable", "there is {sign}, which cannot be printed, at place {place}; leave it out", context)
    return text


NodeValue = Annotated[Text, Field(max_length=LONGEST_NODE_VALUE), AfterValidator(_printable)]
Toleration = Annotated[
    str,
    SpellingRule(rf"^{_KEY}(=.{{1,{LONGEST_NODE_VALUE}}})?$", f"a taint's key, or key=value; a key has {_KEY_RULE}", "dedicated=vision"),
    AfterValidator(_printable),
]


def _undivided(value: Any) -> Any:
    if isinstance(value, float) and not value.is_integer():
        raise inconsistent(
            "{value} is no whole number of slots: a slot is a whole GPU, since nothing would keep ranks that share one from each other's memory and "
            "time; ask for 1",
            value=value,
        )
    return value


class Resources(Part):
    """The gang, all or nothing: `slots` anywhere, on the fewest nodes; or `nodes` times `slots_per_node`, where the slots of each are on one
    node. A slot is a GPU, or one CPU slot on a node without GPUs."""

    nodes: Whole = Field(
        1, ge=1, le=MOST_NODES, description="How many groups of slots_per_node. Several may be on one node, unless spread is true."
    )
    slots_per_node: Annotated[Whole, BeforeValidator(_undivided)] = Field(1, ge=1, le=64, description="Slots placed together on one node.")
    spread: bool = Field(False, description="Place each group on a node of its own, so that losing a node costs only slots_per_node ranks.")
    min_nodes: Whole | None = Field(
        None,
        ge=1,
        le=MOST_NODES,
        description="Minimum nodes needed to start or keep running. Default: same as Nodes to start, one replica to keep running. Scripts "
        "restart with this many when others are lost.",
    )
    max_nodes: Whole | None = Field(
        None,
        ge=1,
        le=MOST_NODES,
        description="Maximum nodes when spare slots are available. Default: same as Nodes. Scripts restart to grow.",
    )
    slots: Annotated[Ranks | None, BeforeValidator(_undivided)] = Field(
        None, description="Total slots, in place of nodes and slots_per_node. They are placed on as few nodes as possible."
    )
    min_slots: Ranks | None = Field(None, description="Like Min nodes, for a job that sets Slots.")
    max_slots: Ranks | None = Field(None, description="Like Max nodes, for a job that sets Slots.")
    device: Literal["cuda", "cpu"] | None = Field(
        None, description="Kind of slots. Default: GPUs first, then CPU slots, never both in one job."
    )
    labels: Annotated[dict[NodeKey, NodeValue], at_most(MOST_LABELS)] = Field(
        default_factory=dict,
        max_length=MOST_LABELS,
        description="Use only nodes with all of these labels (set with paceline worker --label).",
    )
    tolerations: tuple[Toleration, ...] = Field(
        (), max_length=MOST_LABELS, description="Node taints to accept: a key, or key=value (set with paceline nodes taint)."
    )

    memory_per_slot: Bytes | None = Field(
        None,
        description="Memory limit of each rank, in bytes or as 512MiB, for strategy auto and micro_batch_size auto. Default: what the device has.",
    )

    @property
    def unit(self) -> Literal["slots", "nodes"]:
        """The unit in which its user counts the job's size, as the fields are called."""
        return "nodes" if self.slots is None else "slots"

    @property
    def blocks(self) -> int:
        """The job's size, in its unit."""
        return self.nodes if self.slots is None else self.slots

    @property
    def min_blocks(self) -> int | None:
        return self.min_nodes if self.slots is None else self.min_slots

    @property
    def max_blocks(self) -> int | None:
        return self.max_nodes if self.slots is None else self.max_slots

    @property
    def slots_per_block(self) -> int:
        return self.slots_per_node if self.slots is None else 1

    @property
    def world_size(self) -> int:
        return self.blocks * self.slots_per_block

    @property
    def most_ranks(self) -> int:
        return (self.max_blocks or self.blocks) * self.slots_per_block

    @property
    def is_elastic(self) -> bool:
        return self.min_blocks not in (None, self.blocks) or self.max_blocks not in (None, self.blocks)

    @model_validator(mode="after")
    def check_unit(self) -> Resources:
        """Refuse a size that is given in two ways. The default values of the other way are no size: documents that are read back have them."""
        if self.slots is None:
            for name in ("min_slots", "max_slots"):
                if (value := getattr(self, name)) is not None:
                    other = name.replace("slots", "nodes")
                    raise inconsistent("{name}={value} goes with slots; set slots, or use {other}", name=name, value=value, other=other)
            return self
        for name, default in (("nodes", 1), ("slots_per_node", 1), ("min_nodes", None), ("max_nodes", None), ("spread", False)):
            if (value := getattr(self, name)) != default:
                raise inconsistent(
                    "slots={slots} leaves the choice of nodes to the scheduler, and {name}={value} makes one; leave out one of them",
                    slots=self.slots,
                    name=name,
                    value=str(value).lower(),
                )
        return self

    @model_validator(mode="after")
    def check_size_range(self) -> Resources:
        least, most = self.min_blocks, self.max_blocks
        if least is not None and least > self.blocks:
            raise inconsistent("min_{unit}={least} is more than {unit}={size}", least=least, unit=self.unit, size=self.blocks)
        if most is not None and most < self.blocks:
            raise inconsistent("max_{unit}={most} is less than {unit}={size}", most=most, unit=self.unit, size=self.blocks)
        return self
