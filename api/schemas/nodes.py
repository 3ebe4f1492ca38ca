"""Nodes, their slots and their GPUs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from paceline.api.schemas.common import Schema, Timestamp
from paceline.cluster.provisioners.settings import AutoscaleSettings, PoolName, ProviderSettings
from paceline.cluster.states import LaunchState, NodeState
from paceline.training.schema.parts import at_most
from paceline.training.schema.resources import MOST_LABELS, NodeKey, NodeValue, Toleration

#: Nodes of one request.
MOST_AT_ONCE = 256


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
    job_id: str | None = Field(None, description="of the job whose rank holds the card's slot; null: none does")
    job_name: str | None = None
    rank: int | None = None


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
    container_engines: list[str] = Field([], description="that work, the preferred one first; jobs with `environment.image` need one")
    has_uv: bool | None = Field(None, description="to install `environment.requirements`; null: an agent that does not say")
    clock_skew_seconds: float | None
    heartbeat_age_seconds: float | None
    backlog_records: int
    drain_blocked_by: list[str] = Field([], description="ids of the jobs that a draining node waits for")
    joined_at: Timestamp
    provider: str = Field("manual", description="what started it: `manual`, a person with a command; else the type of its provider")
    pool: str | None = Field(None, description="the pool that it was launched for")
    handle: str | None = Field(None, description="its provider's own name for it")
    revision: int


class NodeTaints(Schema):
    """The taints that a node is to have, in the place of those that it has."""

    taints: Annotated[dict[NodeKey, NodeValue], at_most(MOST_LABELS)] = Field(description="by key; the value may be empty")


class NodeTaintChange(Schema):
    """A change of a node's taints that leaves the others as they are, whoever changes them at the same time."""

    set: Annotated[dict[NodeKey, NodeValue], at_most(MOST_LABELS)] = Field({}, description="by key; one that is there gets this value")
    remove: list[Toleration] = Field([], max_length=MOST_LABELS, description="by key, with any value, or as key=value")


class NodeRequest(Schema):
    """Add nodes. Without `pool` and `provider`, the answer is a join token and the command to run on the new machine."""

    provisioner: Literal["manual"] = Field("manual", description="without `pool` and `provider`")
    expires_in_seconds: int = Field(3600, ge=60, le=86400, description="of the token of a command")
    pool: PoolName | None = Field(None, description="launch nodes of this pool")
    count: int | None = Field(None, ge=1, le=MOST_AT_ONCE, description="how many; default: 1 of a pool, all hosts of a provider")
    provider: ProviderSettings | None = Field(None, description="launch nodes without a pool, such as on hosts with SSH")
    labels: Annotated[dict[NodeKey, NodeValue], at_most(MOST_LABELS)] = Field({}, description="of nodes without a pool")
    slots: int | None = Field(None, ge=1, le=64, description="of each node without a pool; default: what the machine has")

    @model_validator(mode="after")
    def check_source(self) -> NodeRequest:
        if self.pool is not None and (self.provider is not None or self.labels or self.slots is not None):
            raise ValueError("pool is given: provider, labels and slots are those of the pool; leave them out")
        return self


class NodeInvitation(Schema):
    token: str = Field(description="single-use; shown once")
    command: str = Field(description="what to run on the new machine")
    expires_at: Timestamp
    warning: str | None = Field(
        None, description="why another machine cannot use the command, and the way out; null: it can, as far as we know"
    )


class NodeLaunch(Schema):
    """A node that a provider is to start, or has failed to."""

    id: str
    name: str = Field(description="that its node will have")
    pool: str | None
    provider: str
    state: LaunchState
    wanted: bool = Field(description="false: it was cancelled or removed, and is being ended")
    reason: str = Field(description="where it waits")
    failure: str = Field(description="why it was given up; empty: it was not")
    remedy: str = Field(description="the way out")
    handle: str | None = Field(description="its provider's own name for it")
    requested_by: str
    created_at: Timestamp
    state_since: Timestamp
    command: str | None = Field(None, description="what to run on the new machine, where people start the nodes; shown once")


class NodeLaunches(Schema):
    """The launches that a request has made."""

    launches: list[NodeLaunch]
    warning: str | None = None


class WithheldJob(Schema):
    """A pending job that the autoscaler launches no node of a pool for."""

    job_id: str
    job_name: str
    reason: str


class NodePool(Schema):
    """A pool, and how many nodes it has."""

    name: str
    provider: ProviderSettings | dict[str, Any] = Field(description="as it is stored, where the pool is unreadable")
    unreadable: str | None = Field(
        None,
        description="why this version cannot read what is stored of the pool: it is left as it is until it is applied again; null: it can",
    )
    min_nodes: int
    max_nodes: int
    labels: dict[str, str]
    slots: int | None
    spot: bool
    autoscale: AutoscaleSettings | None = Field(None, description="set: the coordinator decides how many nodes it has")
    node_hours: float | None = Field(
        None, description="that its nodes have run for in this calendar month (UTC), with autoscale or without"
    )
    server: str = Field(description="the coordinator's URL, as its nodes reach it")
    nodes: int = Field(description="that have joined, and are wanted")
    coming: int = Field(description="that were asked for, and have not joined")
    withheld: list[WithheldJob] = Field([], description="pending jobs that no node of it is launched for, and why; the first twenty")
    withheld_count: int = Field(0, description="how many such jobs there are")
    updated_at: Timestamp
