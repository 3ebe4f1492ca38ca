"""Why jobs that are not placed wait, in words: a pure function of the nodes and of the room that is left when the question is asked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from paceline.cluster.policy.requirements import TOOLS, NodeTool, Requirements
from paceline.cluster.policy.room import AVAILABLE, FREE, SLOTS, NodeView, Pool, Room, SlotMeasure

#: How many nodes that a job cannot use are named; the others are counted.
MOST_NAMED = 3
_ONE_FOLDER = (
    "set checkpoint.directory to a path on a file system that all of them mount or to an object store (s3://BUCKET/PREFIX), "
    "or start agents with --checkpoints on a shared one"
)
_MOUNTED = "mount one file system there on more nodes and start their agents again, or submit the job with checkpoint.shared set to true where it is one folder"
_OTHER_DEVICE = "wait for such a node, or go on with another device as a new job: paceline restore CHECKPOINT"
_MATCH = "ask for other resources.labels, tolerations or device, or change what nodes have (paceline worker --label, paceline nodes taint)"


@dataclass(frozen=True)
class PlacementReason:
    code: str
    text: str
    missing: str | None = None
    nearest_fit: str | None = None
    next_step: str | None = None


@dataclass(frozen=True)
class Shape:
    """The least that a gang needs: so many blocks of so many slots; spread: each on a node of its own."""

    blocks: int
    size: int
    spread: bool = False

    def spoken(self, free: str = "") -> str:
        """The shape for a sentence. `free`: the word before slots."""
        if self._in_nodes:
            return f"{count_of(self.blocks, 'node')} with {count_of(self.size, f'{free}slot')}{' each' if self.blocks > 1 else ''}"
        return self._spoken(self.blocks, "", free)

    def missing(self, blocks: int, free: str = "") -> str:
        """Say what is missing if so many more blocks are needed."""
        if self._in_nodes:
            return f"{count_of(blocks, 'more node')} with {count_of(self.size, f'{free}slot')}"
        return self._spoken(blocks, "more ", free)

    def capacity(self, blocks: int) -> str:
        """Say how much nodes with room for so many blocks have."""
        if self._in_nodes:
            return count_of(blocks, "such node")
        return count_of(blocks, "slot") if self.size == 1 else f"room for {count_of(blocks, 'such block')}"

    @property
    def counted(self) -> str:
        """How many blocks these are, as the job's user counts them."""
        return count_of(self.blocks, "node" if self.spread else "slot" if self.size == 1 else "block")

    @property
    def _in_nodes(self) -> bool:
        return self.spread or self.blocks == 1

    def _spoken(self, blocks: int, more: str, free: str) -> str:
        if self.size == 1:
            return count_of(blocks, f"{more}{free}slot")
        return f"{count_of(blocks, f'{more}block')} of {count_of(self.size, f'{free}slot')}"


class Explanations:
    """Why jobs that are not placed wait. What does not change during a pass is found out once."""

    def __init__(self, nodes: Sequence[NodeView], room: Room) -> None:
        self._nodes, self._room = nodes, room
        self._hindered: dict[Requirements, tuple[str, tuple[Pool, ...]]] = {}
        self._largest: dict[Requirements, NodeView | None] = {}
        self._away: dict[tuple[Requirements, int], list[NodeView]] = {}

    def of(
        self,
        shape: Shape,
        requirements: Requirements,
        left_out: Collection[str] = (),
        apart: frozenset[str] = frozenset(),
        directory: str | None = None,
    ) -> PlacementReason:
        """The reason for a job that starts with no less than this. `left_out`: nodes that it is not placed on, as the others could hold it; `apart`: those
        whose folder for checkpoints is another one than that of the nodes which hold the most of it; `directory`: that folder, if the job names it."""
        if apart and self._most(shape, requirements, AVAILABLE, left_out) >= shape.blocks:
            return self._apart(shape, requirements, apart, directory)
        left_out = frozenset(left_out) if not apart else frozenset(left_out) | apart
        if not self._nodes:
            needs = shape.spoken()
            return PlacementReason("no_nodes", f"needs {needs}; no node has joined", needs, None, "add a node: paceline worker")
        wide = self._most(shape, requirements, SLOTS, left_out)
        if wide < shape.blocks:
            return self._too_small(shape, requirements, wide)
        needs = shape.spoken("free ")
        if self._most(shape, requirements, FREE, left_out) >= shape.blocks:
            text = f"needs {needs}; the free ones are kept for a job that was here first or has a higher priority"
            return PlacementReason("reserved", text, shape.spoken(), None, "wait, or raise the priority")
        nearest = self._largest_free(requirements)
        missing = shape.missing(shape.blocks - self._most(shape, requirements, AVAILABLE, left_out), "free ")
        others, pools = self._hindered_by(requirements)
        others = others if any(free >= shape.size for pool in pools for free, count in pool.available.items() if count) else ""
        text = f"needs {needs}; {nearest}{others}{self._passed_over(left_out - apart)}"
        return PlacementReason("slots_taken", text, missing, nearest, "wait for a job to end, or add a node")

    def _apart(self, shape: Shape, requirements: Requirements, apart: frozenset[str], directory: str | None) -> PlacementReason:
        """The reason for a job that would fit, if it were not for the folders of its checkpoints."""
        wide, needs = self._most(shape, requirements, SLOTS, apart), shape.spoken("free ")
        shared, way_out = (
            (f"checkpoint.directory={directory}", _MOUNTED) if directory else ("their default folder for checkpoints", _ONE_FOLDER)
        )
        text = f"needs {needs} where nodes share {shared}; the free ones do not"
        if wide >= shape.blocks:
            return PlacementReason("slots_taken", text, needs, None, f"wait for a job to end; or {way_out}")
        return PlacementReason("no_matching_node", text, shape.missing(shape.blocks - wide), None, way_out)

    def _most(self, shape: Shape, requirements: Requirements, measure: SlotMeasure, left_out: Collection[str] = ()) -> int:
        """The number of blocks that fit, on the kind of device that has room for the most."""
        selections = self._room.selections(requirements, left_out)
        return max((each.blocks(measure, shape.size, spread=shape.spread) for each in selections), default=0)

    def _passed_over(self, left_out: Collection[str]) -> str:
        """The nodes that could not start the job, for the end of a sentence."""
        names = [self._room.nodes[node_id].node.name for node_id in left_out if node_id in self._room.nodes]
        return f"; {_named(names)} could not start it a short time ago" if names else ""

    def _too_small(self, shape: Shape, requirements: Requirements, wide: int) -> PlacementReason:
        needs, lacking = shape.spoken(), shape.blocks - wide
        away = self._away_with(requirements, shape.size)
        largest = self._largest_of(requirements)
        if wide == 0 and (tool := self._missing_tool(requirements)):
            return PlacementReason(tool.code, f"needs {needs}; {tool.lacking}", shape.missing(lacking), None, tool.way_out)
        others, pools = self._hindered_by(requirements)
        nobody = None if others else "no node is ready"
        nearest = f"the largest node has {count_of(largest.slots, 'slot')} ({largest.name})" if largest else nobody
        if away and wide + _blocks((node.slots for node in away), shape) >= shape.blocks:
            names = ", ".join(sorted(node.name for node in away))
            text = f"needs {needs}; {shape.capacity(wide)} ready; no new jobs go to {names}"
            missing = shape.missing(lacking).partition(" with ")[0]
            return PlacementReason("nodes_unavailable", text, missing, nearest, f"bring back or uncordon {names}")
        has = f"the cluster has {shape.capacity(wide)}"
        if wide + sum(_blocks((room.node.slots for room in pool.rooms), shape) for pool in pools) >= shape.blocks:
            way_out = _OTHER_DEVICE if requirements.has_run else self._matching(requirements)
            return PlacementReason("no_matching_node", f"needs {needs}; {has} for it{others}", shape.missing(lacking), nearest, way_out)
        text = f"needs {needs}; {has}{f': {nearest}' if nearest else ' for it'}{others}"
        way_out = f"add nodes, or {self._smaller(shape, requirements) if nearest else self._matching(requirements)}"
        return PlacementReason("cluster_too_small", text, shape.missing(lacking), nearest, way_out)

    def _missing_tool(self, requirements: Requirements) -> NodeTool | None:
        """The tool that the job needs and no node has."""
        wanted = [tool for tool in TOOLS if tool.facet in requirements.labels]
        return next((tool for tool in wanted if not any(tool.facet in node.labels for node in self._nodes)), None)

    def _matching(self, requirements: Requirements) -> str:
        """Say how nodes that the job cannot use could be of use: by the tool that all of them lack, where it is that alone."""
        obstacles = {obstacle for pool in self._room.pools if (obstacle := requirements.obstacle(pool.device, pool.labels, pool.taints))}
        return next((tool.way_out for tool in TOOLS if obstacles == {tool.obstacle}), _MATCH)

    def _smaller(self, shape: Shape, requirements: Requirements) -> str:
        """Say what else to ask for, so that the cluster can hold the gang."""
        if shape.spread and self._most(replace(shape, spread=False), requirements, SLOTS) >= shape.blocks:
            return "leave out resources.spread"
        return "ask for fewer nodes or slots_per_node" if shape.size > 1 or shape.spread else "ask for fewer slots"

    def _away_with(self, requirements: Requirements, size: int) -> list[NodeView]:
        """The nodes with so many slots that the job could use, if new jobs went there."""
        if (requirements, size) not in self._away:
            self._away[requirements, size] = [
                node for node in self._nodes if not node.schedulable and node.slots >= size and node.obstacle(requirements) is None
            ]
        return self._away[requirements, size]

    def _largest_of(self, requirements: Requirements) -> NodeView | None:
        if requirements not in self._largest:
            usable = (room.node for each in self._room.selections(requirements) for pool in each.pools for room in pool.rooms)
            self._largest[requirements] = max(usable, key=lambda node: (node.slots, node.name), default=None)
        return self._largest[requirements]

    def _largest_free(self, requirements: Requirements) -> str:
        selections = self._room.selections(requirements)
        largest = max((each.largest for each in selections), key=lambda room: (room.available, room.node.name))
        return f"the largest available node is {largest.node.name} ({count_of(largest.available, 'free slot')})"

    def _hindered_by(self, requirements: Requirements) -> tuple[str, tuple[Pool, ...]]:
        """(the ready nodes that the job cannot use, and why, for the end of a sentence; their pools)."""
        if requirements not in self._hindered:
            pools: dict[str, list[Pool]] = {}
            for pool in self._room.pools:
                if obstacle := requirements.obstacle(pool.device, pool.labels, pool.taints):
                    pools.setdefault(obstacle, []).append(pool)
            told = [f"{_named([room.node.name for pool in of for room in pool.rooms])} ({why})" for why, of in sorted(pools.items())]
            text = f"; it cannot use {', '.join(told)}" if told else ""
            self._hindered[requirements] = (text, tuple(pool for of in pools.values() for pool in of))
        return self._hindered[requirements]


def _blocks(slots: Iterable[int], shape: Shape) -> int:
    """How many blocks nodes with so many slots would hold."""
    return sum(min(1, each // shape.size) if shape.spread else each // shape.size for each in slots)


def _named(names: Sequence[str]) -> str:
    named = ", ".join(sorted(names)[:MOST_NAMED])
    return f"{named} and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else named


def count_of(count: int, noun: str) -> str:
    """As in "1 slot", "2 slots"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
