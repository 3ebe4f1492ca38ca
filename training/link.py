"""What a rank and its agent say to each other over the agent's Unix socket, one JSON object a line. No torch in here.

The rank connects, says `RankHello`, and connects again whenever the agent has been restarted; it says a new hello on the
same connection when it takes its place in another generation (`Reform`). Nothing on this link is the
only copy of anything: metrics, events and logs are files in the rank's folder (`RankFolder`), of which `Progress` is a nudge.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from paceline.monitoring.lines import encode_line
from paceline.monitoring.points import MAX_STEP
from paceline.training.errors import UnreadableSpecError
from paceline.training.rank_folder import RankFolder
from paceline.training.spec.stored import SpecField, spec_from_json, spec_to_json

if TYPE_CHECKING:
    from paceline.training.spec.job import JobSpec

#: Any code in the rank's process may write to its link and its result: a number that no database can hold is not decoded.
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_STEP)]
ExitCode = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
#: How a rank ends. `released`: it left a gang that goes on without it, or was never needed.
Outcome = Literal["completed", "paused", "released", "failed"]


class ProcessIdentity(msgspec.Struct, frozen=True):
    """Generation and rank that a process was started as: its identity while its place changes."""

    generation: int
    rank: int


class RankPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's place in one generation of a job: its numbers, its slot, where the ranks meet and what it starts from."""

    job_id: str
    generation: int
    rank: int
    local_rank: int
    local_world_size: int
    node_rank: int
    world_size: int
    slot: int  # index of the GPU on its node, or of the CPU slot
    device: Literal["cpu", "cuda"]
    store_host: str  # the rendezvous store, served by the agent of the gang's first node
    store_port: int
    store_token: str  # proves membership of this generation
    interface: str | None = None  # network interface for gloo and NCCL; None: their own choice
    checkpoint_directory: str  # of this job; every node sees it
    restore_from: tuple[str, ...] = ()  # checkpoint folders, best candidate first; empty: start at step 0
    restore_required: bool = False  # fail rather than start over when none of them verifies
    birth: ProcessIdentity | None = None  # a living process takes this place; None: a new one does
    parked: bool = False  # no place yet: build everything, then wait for one. `rank` counts on from world_size
    restarts: int = 0  # of the job after a fault, before this generation: torchrun's TORCHELASTIC_RESTART_COUNT
    node_count: int = 0  # nodes of the generation; 0: from a coordinator that does not say
    hostname: str | None = None  # of the node, which other nodes may share; the agent fills it in. None: it does not tell
    at_boundary: bool = False  # its ranks come from a generation that is well: they leave that one after a step they agree on

    @property
    def machine(self) -> str:
        """The machine that this rank is on: a host, however many nodes it has; a node where the host is not known."""
        return self.hostname or f"node {self.node_rank}"

    @property
    def process(self) -> ProcessIdentity:
        return self.birth or ProcessIdentity(self.generation, self.rank)


class RankHello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    job_id: str
    generation: int
    rank: int
    pid: int
    birth: ProcessIdentity


class Joined(msgspec.Struct, frozen=True, kw_only=True, tag="joined"):
    """The process group stands and the state is loaded; training starts at `step` + 1."""

    step: Count
    total_steps: Count


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag="progress"):
    """Steps committed so far, and a nudge that the spool has news. Sent at most every 50 ms."""

    step: Count


class Broken(msgspec.Struct, frozen=True, kw_only=True, tag="broken"):
    """Message of a rank that has lost its group in or after `step`, keeps its state, and waits for `Reform`."""

    step: Count
    failure: FailureReport


class GroupCall(msgspec.Struct, frozen=True):
    """One collective call of a generation. `number` counts this rank's calls; 0 for calls other than the trainer's."""

    number: Count
    what: str

    def __str__(self) -> str:
        return f"call {self.number} ({self.what})" if self.number else self.what


class Stalled(msgspec.Struct, frozen=True, kw_only=True, tag="stalled"):
    """Message of a rank that has been in one activity longer than ever before. Repeated as time goes by, or when its content changes."""

    step: Count  # the one it works on
    phase: str  # data, forward, backward, optimizer, exchange; evaluation, save, rendezvous
    seconds: float  # since it began with this step, evaluation or save
    limit: float  # seconds within which it is usually done
    patience: float  # seconds after which it counts as hung, though nothing else speaks for that
    since: float  # wall clock
    waits: GroupCall | None = None  # for the other ranks, in this call; None: it is at work itself
    recent: tuple[GroupCall, ...] = ()  # its newest calls, oldest first
    where: str = ""  # the line of the user's code it is in
    unanswered: tuple[Count, ...] = ()  # ranks whose machine does not answer

    @property
    def overdue(self) -> bool:
        return self.seconds >= self.patience


class Moving(msgspec.Struct, frozen=True, kw_only=True, tag="moving"):
    """A stalled rank makes progress again."""


class Parked(msgspec.Struct, frozen=True, kw_only=True, tag="parked"):
    """Model and optimizer are built; this process waits for a place (`Reform`)."""


class PauseRequest(msgspec.Struct, frozen=True, kw_only=True, tag="pause"):
    """Save at an agreed step, then exit with the outcome `paused`. Repeated until obeyed; harmless the second time."""


class CheckpointRequest(msgspec.Struct, frozen=True, kw_only=True, tag="checkpoint"):
    """Save after the current step and go on."""


class TraceRequest(msgspec.Struct, frozen=True, kw_only=True, tag="profile"):
    """Trace the next `steps` steps. Repeated until the trace, or why there is none, is with the coordinator; each id is obeyed once."""

    id: str
    steps: int


class GradientsRequest(msgspec.Struct, frozen=True, kw_only=True, tag="gradients"):
    """Record the gradients of the parameters with `names` in the step after which all ranks know of this. Repeated until the record, or why
    there is none, is with the coordinator; each id is obeyed once."""

    id: str
    names: tuple[str, ...]
    snapshots: bool


class Release(msgspec.Struct, frozen=True, kw_only=True, tag="release"):
    """The next generation does without this rank: leave with the others at the step they agree on, then exit with `released`.
    Repeated until obeyed."""


class FailureReport(msgspec.Struct, frozen=True, kw_only=True):
    """Cause of a rank's end, as reported by the rank, or by its agent if the rank left no report."""

    kind: Literal[
        "exception",
        "signal",
        "out_of_memory",
        "peer_lost",
        "invalid_input",
        "checkpoint_failed",
        "exit",
        "loss_not_finite",
        "loss_spike",
        "rolled_back",
        "node_removed",
    ]
    rank: Count
    message: str
    exception: str = ""  # qualified class name
    traceback: str = ""
    users_traceback: str = ""  # without the frames of libraries
    where: str = ""  # the line of the user's code, as `loss in train.py:22`
    step: Count = 0
    time: float = 0.0
    exit_code: ExitCode | None = None
    signal: str | None = None
    ordered: bool = False  # it had been told to end before it did, and did not crash instead
    last_lines: tuple[str, ...] = ()
    ended: tuple[Count, ...] = ()  # of its peers: whose processes had ended when it lost its group


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The rank's last word, written to `RankFolder.result` (fsync, rename) just before it exits."""

    outcome: Outcome
    step: Count
    failure: FailureReport | None = None


class Interpreter(msgspec.Struct, frozen=True, kw_only=True):
    """The Python that a rank's process has. All empty: the agent's own."""

    python: str = ""  # its executable
    environment: str = ""  # key of the environment that was built for the job, which stays as long as the rank lives
    spawner: str = ""  # name of the spawner that forks the rank; empty: the node's default one


class RankOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a forked rank needs: what to train, its place in the world, where to write, and which agent to call."""

    spec: SpecField
    world: RankPlace
    folder: str
    agent_socket: str
    interpreter: Interpreter = Interpreter()  # what the node has prepared for the rank

    @property
    def job_spec(self) -> JobSpec:
        """The typed spec. Raises UnreadableSpecError where the version of Paceline on this node refuses it."""
        if self.spec.readable is None:
            raise UnreadableSpecError(
                f"the Paceline on this node cannot read the job's spec: {self.spec.why_unreadable}; install the coordinator's version on the node"
            )
        return self.spec.readable

    @property
    def working_directory(self) -> str | None:
        """The folder in which the rank's code lies and its process starts: the job's own folder on the node for code that was sent along,
        else the one that the spec names. None: the spec names none."""
        if self.spec.part("environment", "code") is not None:
            return str(RankFolder.at(Path(self.folder)).work)
        named: str | None = self.spec.part("environment", "working_directory")
        return named


class Reform(msgspec.Struct, frozen=True, kw_only=True, tag="reform"):
    """Leave the present generation and take this place: at once, wherever you are in it, or (`RankPlace.at_boundary`) after a step
    that all its ranks agree on. Repeated until obeyed."""

    order: RankOrder


FromRank = RankHello | Parked | Joined | Progress | Broken | Stalled | Moving
ToRank = PauseRequest | CheckpointRequest | TraceRequest | GradientsRequest | Reform | Release

_to_rank: msgspec.json.Decoder[ToRank] = msgspec.json.Decoder(ToRank, dec_hook=spec_from_json)
_order = msgspec.json.Decoder(RankOrder, dec_hook=spec_from_json)


def encode_to_rank(message: ToRank) -> bytes:
    """The message as a line."""
    return encode_line(message, spec_to_json)


def decode_to_rank(line: bytes) -> ToRank:
    return _to_rank.decode(line)


def encode_order(order: RankOrder) -> bytes:
    """The content of `RankFolder.order`."""
    return msgspec.json.encode(order, enc_hook=spec_to_json)


def decode_order(content: bytes) -> RankOrder:
    return _order.decode(content)
