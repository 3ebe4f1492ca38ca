"""The parts of the coordinator's answers that tables and waits read. Unknown fields are ignored: the API only grows."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

import msgspec

TERMINAL_STATES = frozenset({"completed", "failed", "cancelled"})

AnyFloat = float | str
View = TypeVar("View")


class Progress(msgspec.Struct, frozen=True):
    step: int = 0
    total_steps: int | None = None
    loss: AnyFloat | None = None
    tokens_per_second: AnyFloat | None = None
    samples_per_second: AnyFloat | None = None
    eta_seconds: float | None = None
    not_finite_step: int | None = None
    last_checkpoint_step: int | None = None


class Reason(msgspec.Struct, frozen=True):
    code: str
    text: str
    missing: str | None = None
    nearest_fit: str | None = None
    next_step: str | None = None


class Rank(msgspec.Struct, frozen=True):
    rank: int
    node_name: str
    slot: int
    state: str
    parked: bool = False
    place: dict[str, int] = {}
    pid: int | None = None
    step: int = 0
    heartbeat_age_seconds: float | None = None
    exit_code: int | None = None
    signal: str | None = None


class Generation(msgspec.Struct, frozen=True):
    generation: int
    world_size: int
    started_at: datetime
    first_step_at: datetime | None = None
    ended_at: datetime | None = None
    end_reason: str | None = None
    start_step: int = 0


class Failure(msgspec.Struct, frozen=True):
    kind: str
    rank: int
    node_name: str
    message: str
    exception: str = ""
    where: str = ""
    share: str = "victim"
    signal: str | None = None
    last_lines: list[str] = []
    victims: list[Failure] = []

    @property
    def what(self) -> str:
        """The exception where there was one, else what kind of end it was."""
        return self.exception or self.kind

    @property
    def said(self) -> str:
        """The failure's message, followed by the line of the user's code where that is known."""
        return f"{self.message} ({self.where})" if self.where else self.message


class PlanOption(msgspec.Struct, frozen=True):
    name: str
    memory_bytes: int
    step_seconds: float
    why: str = ""


class PlanChoice(msgspec.Struct, frozen=True):
    """Where `strategy: auto` was asked for."""

    asked: list[str]
    why: str
    assumed: str
    budget_bytes: int
    chosen: PlanOption
    rejected: list[PlanOption] = []
    not_told: int = 0


class DataRemoval(msgspec.Struct, frozen=True):
    state: str
    asked_by: str


class Job(msgspec.Struct, frozen=True):
    id: str
    name: str
    state: str
    desired: str
    progress: Progress
    world_size: int
    generation: int
    restarts: int
    created_at: datetime
    strategy: str
    model: str = ""
    project: str = ""
    end_reason: str | None = None
    pending: Reason | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    revision: int = 0
    failure: Failure | None = None
    actual_world_size: int | None = None
    choice: PlanChoice | None = None
    data_removal: DataRemoval | None = None
    ranks: list[Rank] = []
    generations: list[Generation] = []

    @property
    def ended(self) -> bool:
        return self.state in TERMINAL_STATES

    @property
    def size(self) -> int:
        """Ranks of its newest generation: a gang that lost some goes on with fewer than the job asks for."""
        if self.actual_world_size is not None:
            return self.actual_world_size
        return self.generations[-1].world_size if self.generations else self.world_size

    @property
    def warming(self) -> int:
        """Ranks without a place: spares, and those that are to join."""
        return sum(rank.parked and rank.state not in ("exited", "lost", "stopping") for rank in self.ranks)

    @property
    def seconds_to_first_step(self) -> float | None:
        """Submission to the first committed step, both by the coordinator's clock."""
        first = next((one.first_step_at for one in self.generations if one.first_step_at), None)
        return None if first is None else (first - self.created_at).total_seconds()


class LogEntry(msgspec.Struct, frozen=True):
    seq: int
    rank: int
    time: datetime
    level: str
    text: str
    generation: int = 0


class LogPage(msgspec.Struct, frozen=True):
    items: list[LogEntry]
    next_after: int
    complete: bool = False


class Checkpoint(msgspec.Struct, frozen=True):
    id: str
    step: int
    state: str
    bytes: int
    best: bool
    latest: bool
    pinned: bool
    created_at: datetime
    metrics: dict[str, AnyFloat] = {}
    stall_seconds: float | None = None
    write_seconds: float | None = None
    slowdown: float | None = None
    damage: str | None = None


class SlotUse(msgspec.Struct, frozen=True):
    index: int
    job_id: str | None = None
    job_name: str | None = None
    rank: int | None = None


class Node(msgspec.Struct, frozen=True):
    id: str
    name: str
    state: str
    device: str
    slots: list[SlotUse]
    address: str
    gpu_note: str | None = None
    heartbeat_age_seconds: float | None = None
    drain_blocked_by: list[str] = []


class Placement(msgspec.Struct, frozen=True):
    rank: int
    node_name: str
    slot: int


class Memory(msgspec.Struct, frozen=True):
    """Bytes. A coordinator from before there were parts gives only some of them."""

    total: int
    parameters: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    buffers: int = 0
    moment: str = ""
    made_from: str = ""
    note: str = ""


class Stage(msgspec.Struct, frozen=True):
    place: int
    layers: str


class Plan(msgspec.Struct, frozen=True):
    plan_hash: str
    world_size: int
    strategy: str
    global_batch_size: int | None = None
    micro_batch_size: int | None = None
    micro_batches: int | None = None
    reproducible: bool = False
    parameter_count: int | None = None
    stages: list[Stage] = []
    memory_per_rank: Memory | None = None
    placement: list[Placement] | None = None
    pending: Reason | None = None
    warnings: list[str] = []
    choice: PlanChoice | None = None


def view(document: Any, kind: type[View]) -> View:
    return msgspec.convert(document, kind)
