"""The agent protocol: level-triggered control messages on one WebSocket, one JSON object a frame.

The coordinator keeps the desired assignments of each node, the agent reports the observed ones, and both are re-sent until
they agree. Everything sent twice is harmless. Metrics, logs and events travel apart: `monitoring.points.Upload`.

    agent -> coordinator:   AgentHello, Heartbeat, Observed, Notice, Leaving
    coordinator -> agent:   Welcome, Desired, OpenExec, ConnectionRefused

A command beside a rank has a connection of its own (`cluster.exec_frames`), which OpenExec asks for.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import msgspec

from paceline.cluster.stacks import StackSample
from paceline.cluster.states import RankState
from paceline.monitoring.points import RankBatch
from paceline.monitoring.samples import Gpu, GpuSample, HostSample
from paceline.training.link import FailureReport, Outcome, RankPlace, Stalled
from paceline.training.spec.stored import SpecField, spec_from_json, spec_to_json

__all__ = ["Gpu", "GpuSample", "HostSample"]  # re-exported: they are part of the messages

PROTOCOL_VERSION = 1
OLDEST_PROTOCOL_VERSION = 1
#: The most slots of one node. Each is a number in memory at every look at the nodes, so an inventory is not believed beyond this.
MOST_SLOTS = 1024
CHANNEL_PATH = "/api/v1/agents/channel"
UPLOAD_PATH = "/api/v1/agents/upload"
JOIN_PATH = "/api/v1/agents/join"
BUNDLES_PATH = "/api/v1/agents/bundles"  # GET .../{digest}: the archive
SECRETS_PATH = "/api/v1/agents/secrets"  # GET .../{job_id}: JobSecrets, for a node that has ranks of the job
ENDED_JOBS_PATH = "/api/v1/agents/ended-jobs"  # POST an EndedJobsQuestion: EndedJobs
ARTIFACTS_PATH = "/api/v1/agents/artifacts"  # POST an Offer; PUT .../{id}/{chunk} its bytes
ARTIFACT_FILES_PATH = f"{ARTIFACTS_PATH}/files"  # POST a FilesOffer; larger files follow as above


class RankKey(NamedTuple):
    """One rank of one generation of a job."""

    job_id: str
    generation: int
    rank: int

    @classmethod
    def of(cls, named: RankPlace | RankBatch) -> RankKey:
        """The rank that takes a place, or that a batch of records comes from."""
        return cls(named.job_id, named.generation, named.rank)

    @classmethod
    def of_process(cls, place: RankPlace) -> RankKey:
        """The key that the process in this place was started with: the same in every generation it lives through."""
        return cls(place.job_id, place.process.generation, place.process.rank)


class GenerationKey(NamedTuple):
    """One generation of a job."""

    job_id: str
    generation: int


class JoinRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The body of POST JOIN_PATH, with a single-use join token; answered with the node's lasting credential."""

    token: str
    name: str


class JoinReply(msgspec.Struct, frozen=True, kw_only=True):
    node_id: str
    credential: str


class JobSecrets(msgspec.Struct, frozen=True, kw_only=True):
    """The secrets that a job's spec names. Asked for when ranks are about to start, and by an agent that takes over ranks."""

    values: dict[str, str]  # by the name of their variable
    former: tuple[str, ...] = ()  # values that ranks which still run may have been given: to be masked
    missing: tuple[str, ...] = ()  # named, and deleted since the job was submitted
    since: int = 0  # the job's first generation that can have had no others: earlier ones may have had values that are deleted

    def __repr__(self) -> str:
        return f"JobSecrets of {', '.join(self.values)}"  # no log is to have the values


class EndedJobsQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """Asks which of these jobs ended at least so many seconds ago, before the last that they have on a node is removed."""

    job_ids: tuple[Annotated[str, msgspec.Meta(pattern=r"^[\w-]{1,64}\Z")], ...]
    seconds_ago: Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class EndedJobs(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an `EndedJobsQuestion`. Jobs that were deleted, and those that nobody knows, have ended."""

    job_ids: tuple[str, ...]


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    slots: int
    device: Literal["cpu", "cuda"]
    gpus: tuple[Gpu, ...] = ()
    cpu_count: int
    memory_bytes: int
    hostname: str
    platform: str
    versions: dict[str, str] = {}  # python, torch, paceline, driver, cuda
    labels: dict[str, str] = {}
    taints: dict[str, str] = {}  # as long as no admin has set others
    #: The disk of the agent's default folder for checkpoints, if that is one of this machine: a node with another disk does not share it.
    #: None: on a network file system, or from an agent that does not say.
    checkpoint_disk: str | None = None
    #: The identity of the machine: its agents have it in common. None: the kernel does not tell it.
    machine: str | None = None
    #: Mount points of file systems that other machines may see, and folders that this one exports, when the agent started. None: from an agent that does not say.
    shared_mounts: tuple[str, ...] | None = None
    own_mounts: tuple[str, ...] = ()  # of disks of this machine, in one of those
    container_engines: tuple[str, ...] = ()  # that can run containers, the preferred one first
    has_uv: bool | None = None  # beside the agent's Python, to install packages of jobs. None: an agent that does not say
    #: Wall clock: when the machine will be taken away, by a time limit for example. None: not known.
    ends_at: float | None = None


class AgentHello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    protocol: int
    agent_version: str
    boot_id: str  # new at each start of the agent
    inventory: Inventory
    address: str  # where other nodes reach this one
    store_port: int  # the rendezvous store it serves
    runs_commands: bool = False  # it knows OpenExec


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True, tag="heartbeat"):
    time: float  # the agent's wall clock, for the skew
    host: HostSample
    gpus: tuple[GpuSample, ...] = ()
    gpu_error: str | None = None  # why there are no GPU readings, e.g. "no GPU"
    backlog_records: int = 0  # spooled and not yet acknowledged


class ObservedRank(msgspec.Struct, frozen=True, kw_only=True):
    rank: int
    slot: int
    state: RankState
    pid: int | None = None
    step: int = 0
    total_steps: int | None = None
    progress_age: float | None = None  # seconds since its last step or message
    outcome: Outcome | None = None  # once exited
    exit_code: int | None = None
    signal: str | None = None
    failure: FailureReport | None = None  # what ended it or, of a living rank, what cost it its group
    stall: Stalled | None = None  # of a living rank: what it is at for too long
    suspended: bool = False  # its process is stopped: SIGSTOP, a debugger
    drained: bool = False  # exited or moved, and everything it left behind is acknowledged
    quiet_since: float | None = None  # wall clock: a script's rank has had no output and no step since, for its patience
    stacks: StackSample | None = None  # as DesiredAssignment.stacks asks for, as long as it does


class ObservedAssignment(msgspec.Struct, frozen=True, kw_only=True):
    job_id: str
    generation: int
    ranks: tuple[ObservedRank, ...]


class Observed(msgspec.Struct, frozen=True, kw_only=True, tag="observed"):
    """The state of everything on a node: sent on change, and every few seconds without one."""

    revision: int  # of the Desired that this answers; 0: none seen yet
    assignments: tuple[ObservedAssignment, ...]
    deleted_checkpoints: tuple[str, ...] = ()  # ids of Desired.delete_checkpoints that are gone from disk


class Leaving(msgspec.Struct, frozen=True, kw_only=True, tag="leaving"):
    """The agent was told to end (SIGTERM): it ends its ranks now and takes no new ones. Sent in place of heartbeats until they have
    ended."""


class Notice(msgspec.Struct, frozen=True, kw_only=True, tag="notice"):
    """The agent's machine will be taken away: the node is to be drained before. Sent once to each coordinator that takes it (`Welcome`)."""

    ends_at: float  # wall clock of the agent
    reason: str
    returns: bool = False  # the machine comes back, with the node's credential: the node is kept


class Welcome(msgspec.Struct, frozen=True, kw_only=True, tag="welcome"):
    protocol: int
    node_id: str
    heartbeat_seconds: float
    observe_seconds: float
    takes_notices: bool = False  # it knows Notice


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a trace of the next `steps` steps, from the `ranks` that have not answered yet."""

    id: str
    steps: int
    ranks: tuple[int, ...]


class WantedGradients(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a record of the gradients of the next step, from the `ranks` that have not answered yet."""

    id: str
    names: tuple[str, ...]  # patterns for names of parameters
    snapshots: bool  # also keep the gradients themselves
    ranks: tuple[int, ...]


class StacksRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for the Python stacks of `ranks`: those that have not answered yet, and no more than one report can carry."""

    id: str
    ranks: tuple[int, ...]


class DesiredAssignment(msgspec.Struct, frozen=True, kw_only=True):
    """The work of one node for one generation of a job. Once absent from Desired, it is stopped and forgotten.

    run: keep these ranks up; an exited rank stays exited, only a new generation starts it again.
    pause: ask the ranks to save and exit; a parked one just exits.  release: ask them to leave at the step that their gang agrees on.
    stop: SIGTERM, after `grace_seconds` SIGKILL."""

    job_id: str
    generation: int
    action: Literal["run", "pause", "release", "stop"]
    grace_seconds: float = 3.0
    spec: SpecField
    worlds: tuple[RankPlace, ...]  # the ranks of this node
    profile: Profile | None = None
    gradients: WantedGradients | None = None
    stacks: StacksRequest | None = None


class CheckpointToDelete(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    directory: str  # an absolute path, or the URL of a place in an object store
    options: dict[str, str] = {}  # of that store, as the job's checkpoint.options say


class Desired(msgspec.Struct, frozen=True, kw_only=True, tag="desired"):
    revision: int  # grows with every change for this node
    assignments: tuple[DesiredAssignment, ...]
    delete_checkpoints: tuple[CheckpointToDelete, ...] = ()
    leave: bool = False  # drained and removed: stop everything and exit


class OpenExec(msgspec.Struct, frozen=True, kw_only=True, tag="open_exec"):
    """Have a keeper for the exec session `id` beside this rank connect. Sent again until it has; harmless the second time."""

    id: str
    key: RankKey


class ConnectionRefused(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """The connection ends; `final` means that trying again will not help."""

    code: Literal["protocol_version", "too_many_slots", "superseded", "removed"]
    message: str
    final: bool


FromAgent = AgentHello | Heartbeat | Observed | Notice | Leaving
ToAgent = Welcome | Desired | OpenExec | ConnectionRefused

_to_agent: msgspec.json.Decoder[ToAgent] = msgspec.json.Decoder(ToAgent, dec_hook=spec_from_json)


def encode_to_agent(message: ToAgent) -> str:
    """The message as the text of a frame."""
    return msgspec.json.encode(message, enc_hook=spec_to_json).decode()


def decode_to_agent(frame: str | bytes) -> ToAgent:
    return _to_agent.decode(frame)
