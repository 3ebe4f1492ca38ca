"""Nodes, their slots and their GPUs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from paceline.api.schemas.common import Schema, Timestamp
from paceline.cluster.states import NodeState
from paceline.training.schema.parts import at_most
from paceline.training.schema.resources import MOST_LABELS, NodeKey, NodeValue, Toleration


class SlotUse(Schema):
    index: int
    job_id: str | None
    job_name: str | None
    rank: int | None


class InterfaceReading(Schema):
    sent_bytes_per_second: float
    received_bytes_per_second: float


class HostReading(Schema):
    cpu_percent: float
    memory_used_bytes: int
    memory_total_bytes: int
    disk_used_bytes: int
    disk_total_bytes: int
    network_sent_bytes_per_second: float
    network_received_bytes_per_second: float
    load_1m: float
    disk_read_bytes_per_second: float | None = None
    disk_written_bytes_per_second: float | None = None
    interfaces: dict[str, InterfaceReading] = {}


class GpuReading(Schema):
    """The readings of a GPU. null: the card does not tell, which is not zero."""

    node_id: str
    node_name: str
    index: int
    uuid: str
    name: str
    utilization_percent: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    pcie_sent_bytes_per_second: float | None = None
    pcie_received_bytes_per_second: float | None = None
    nvlink_sent_bytes_per_second: float | None = None
    nvlink_received_bytes_per_second: float | None = None
    throttle_reasons: list[str] = []
    processes: dict[int, int] = {}
    error: str | None = None
    age_seconds: float


class GpuStatus(Schema):
    gpus: list[GpuReading]
    nodes_without_gpu: list[str] = Field(description='names of nodes that say "no GPU"')


class Node(Schema):
    id: str
    name: str
    state: NodeState
    device: Literal["cpu", "cuda"]
    slots: list[SlotUse]
    gpus: list[GpuReading]
    gpu_note: str | None = Field(description='"no GPU" or the driver\'s error, where there are no readings')
    host: HostReading | None
    address: str
    cpu_count: int
    memory_bytes: int
    hostname: str
    platform: str
    versions: dict[str, str]
    labels: dict[str, str]
    taints: dict[str, str] = Field({}, description="by key; they keep jobs off that do not tolerate them (`resources.tolerations`)")
    clock_skew_seconds: float | None
    heartbeat_age_seconds: float | None
    backlog_records: int
    drain_blocked_by: list[str] = Field([], description="ids of the jobs that a draining node waits for")
    joined_at: Timestamp
    revision: int


class NodeTaints(Schema):
    """The taints that a node is to have, in the place of those that it has."""

    taints: Annotated[dict[NodeKey, NodeValue], at_most(MOST_LABELS)] = Field(description="by key; the value may be empty")


class NodeTaintChange(Schema):
    """A change of a node's taints that leaves the others as they are, whoever changes them at the same time."""

    set: Annotated[dict[NodeKey, NodeValue], at_most(MOST_LABELS)] = Field({}, description="by key; one that is there gets this value")
    remove: list[Toleration] = Field([], max_length=MOST_LABELS, description="by key, with any value, or as key=value")


class NodeRequest(Schema):
    """Add nodes. `manual` answers with a join token and the command to run on the new machine."""

    provisioner: Literal["manual"] = "manual"
    expires_in_seconds: int = Field(3600, ge=60, le=86400)


class NodeInvitation(Schema):
    token: str = Field(description="single-use; shown once")
    command: str = Field(description="what to run on the new machine")
    expires_at: Timestamp
    warning: str | None = Field(
        None, description="why another machine cannot use the command, and the way out; null: it can, as far as we know"
    )
