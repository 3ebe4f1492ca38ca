"""Jobs as clients see them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidatorFunctionWrapHandler, WrapValidator, model_validator

from paceline.api.schemas.common import AnyFloat, Reason, Schema, Timestamp
from paceline.api.schemas.communication import CommunicationChoice
from paceline.api.schemas.plan_choice import PlanChoice
from paceline.api.schemas.stacks import HangNotice
from paceline.api.schemas.storage import DataRemoval
from paceline.cluster.states import EndReason, Intent, JobState, RankState
from paceline.monitoring.loss_watch import BadLossKind
from paceline.training.schema.bad_loss import BadLossPolicy
from paceline.training.schema.parts import Ranks, Text, Whole, inconsistent
from paceline.training.schema.resources import MOST_NODES
from paceline.training.spec.job import JobSpec, LabelName, Name


def _once(spec: Any, check: ValidatorFunctionWrapHandler) -> Any:
    return spec if isinstance(spec, JobSpec) else check(spec)


#: A spec that is not checked again where it has been read: pydantic runs a model's own checks on its instances too.
KnownSpec = Annotated[JobSpec, WrapValidator(_once)]


class SavedFile(Schema):
    """The newest file below a script's working directory that looks like a checkpoint, whichever program wrote it: Paceline can neither
    verify nor load it."""

    path: str = Field(description="on the node of rank 0: a file, or a folder of them")
    bytes: int
    step: int | None = Field(description="the one in its name; null: the name has none")
    time: Timestamp = Field(description="when it was last written to")


class BadLoss(Schema):
    """A loss that was NaN, infinite or a spike, and its consequence."""

    step: int
    kind: BadLossKind
    act: BadLossPolicy = Field(description="what was done: the policy of fault_tolerance.on_nan or on_spike")
    what: str = Field(description="in words, with the step")
    done: str = Field(description="in words")
    sample_ids: list[int] = Field(
        [], description="the first samples of the micro-batches whose loss it was; the event has more. Empty: not known, as for scripts"
    )
    samples: int = Field(0, description="how many samples those micro-batches have")


class JobProgress(Schema):
    """The last report of rank 0."""

    step: int = 0
    total_steps: int | None = None
    loss: AnyFloat | None = None
    tokens_per_second: AnyFloat | None = None
    samples_per_second: AnyFloat | None = None
    mfu: AnyFloat | None = Field(
        None, description="null where the model's arithmetic or the device's peak is not known: see .../performance"
    )
    eta_seconds: float | None = None
    last_checkpoint_step: int | None = None
    saved_file: SavedFile | None = Field(None, description="of a script; null: none was found below its working directory")
    not_finite_step: int | None = Field(None, description="the first step of this generation whose loss was NaN or infinite; null: none")
    bad_loss: BadLoss | None = Field(None, description="the newest one, for the next 500 steps; null: none")
    best_loss: AnyFloat | None = Field(None, description="the lowest that was reported of any step; null: not known")
    eval_loss: AnyFloat | None = Field(None, description="of the newest evaluation; null: there was none")
    best_eval_loss: AnyFloat | None = Field(None, description="the lowest of any evaluation; null: there was none")
    updated_at: Timestamp | None = None


class Failure(Schema):
    """One rank's end; the causing one carries those of the other ranks."""

    kind: str
    rank: int
    node_name: str
    generation: int
    message: str
    exception: str = ""
    traceback: str = ""
    users_traceback: str = Field("", description="the traceback without the frames of libraries; empty: none is the user's")
    where: str = Field("", description="the line of the user's code that raised it, as `loss in train.py:22`; empty: not known")
    share: Literal["victim", "same", "also"] = Field(
        "victim", description="of a rank beside the causing one: dragged down by it, of the same failure, or of another one of its own"
    )
    step: int = 0
    exit_code: int | None = None
    signal: str | None = None
    last_lines: list[str] = []
    victims: list[Failure] = []


class SilentNode(Schema):
    """A node with ranks of the job whose agent has not been heard of for some time. Withdrawn with its next heartbeat."""

    node_id: str
    node_name: str
    since: Timestamp = Field(description="when it was last heard of")
    message: str = Field(description="in words, with its ranks, and what follows")


class JobSummary(Schema):
    id: str
    name: str
    project: str
    priority: int
    labels: dict[str, str]
    state: JobState
    desired: Intent
    end_reason: EndReason | None
    pending: Reason | None = Field(
        None, description="why a queued or recovering job is not running, or a running one has fewer ranks or spares than it should"
    )
    progress: JobProgress
    world_size: int = Field(description="how many ranks the job should have: what its spec says, or the last resize")
    last_world_size: int | None = Field(
        None, description="how many ranks a job that has ended had last; null: it has not ended, or never ran"
    )
    generation: int
    restarts: int
    strategy: str
    model: str = Field(description="gpt, hf, mlp, resnet, entrypoint or script")
    can_pause: bool = Field(True, description="by what it runs: a script only with `script.saves_on_sigterm`, or while it is queued")
    can_resize: bool = Field(
        True,
        description="by what it runs, whatever its state: a script only with a least or most size: `min_nodes`, `max_nodes`, `min_slots` or `max_slots`",
    )
    unreadable: str | None = Field(
        None, description="why this version cannot read the job's stored spec: it is left as it is, and can be cancelled; null: it can"
    )
    hang: HangNotice | None = Field(None, description="it seems to hang; null: it does not, or that is not known")
    silent_nodes: list[SilentNode] = Field([], description="nodes of the job that are not heard of, and not given up as lost yet")
    created_by: str
    created_by_id: str | None = Field(None, description="the user whose job it is; null: nobody's but the admins'")
    created_at: Timestamp
    started_at: Timestamp | None
    ended_at: Timestamp | None
    ran_seconds: float = Field(0.0, description="how long it has held slots, over all generations: what `spec.time_limit` counts")
    archived_at: Timestamp | None = Field(None, description="when it was archived: lists leave it out unless asked; null: it is not")


class Rank(Schema):
    rank: int
    generation: int
    node_id: str
    node_name: str
    slot: int
    card: int | None = Field(None, description="the driver's index of the GPU that it holds; null: a CPU slot, or it has not started yet")
    parked: bool = Field(False, description="holds a slot and waits for a place: a spare, or a rank that is to join")
    place: dict[str, int] = Field({}, description="in the mesh: by axis of more than one rank, its number along it, from 0")
    state: RankState
    pid: int | None
    step: int
    heartbeat_age_seconds: float | None = Field(description="since the rank last made progress or spoke; null before, and after its end")
    exit_code: int | None
    signal: str | None


class Generation(Schema):
    generation: int
    world_size: int
    started_at: Timestamp
    first_step_at: Timestamp | None
    ended_at: Timestamp | None
    end_reason: EndReason | None
    at_boundary: bool = Field(False, description="made of ranks that left the generation before it in good order, after a step")
    start_step: int | None = Field(description="the step that it goes on from; null for a script that has not told it")
    restored_checkpoint_id: str | None


class JobExperiment(Schema):
    """The experiment that a job was submitted by."""

    id: str
    name: str
    trial: int = Field(description="index of the trial that the job is")


class Job(JobSummary):
    spec: KnownSpec | None = Field(description="null where it is unreadable")
    stored_spec: Any = Field(None, description="an unreadable spec, as it is stored")
    revision: int = Field(description="the ETag; send it as If-Match with whatever changes the job")
    failure: Failure | None = None
    restored_from: str | None = Field(None, description="the checkpoint that this job started from")
    experiment: JobExperiment | None = Field(None, description="the experiment of which it is a trial; null: of none")
    choice: PlanChoice | None = Field(None, description="where strategy auto was asked for: what stands in its place in the spec, and why")
    communication: CommunicationChoice | None = Field(
        None, description="where communication: auto was asked for: how gradients are summed, and why; null: not decided yet"
    )
    notes: str = ""
    time_limit_seconds: int | None = Field(None, description="`spec.time_limit`")
    time_left_seconds: float | None = Field(None, description="of `spec.time_limit`; null: no limit, or it has ended")
    time_limit_at: Timestamp | None = Field(None, description="when it reaches `spec.time_limit`; null: no limit, or it holds no slots now")
    actual_world_size: int | None = Field(None, description="ranks of the newest generation; null once that has ended")
    ranks: list[Rank] = Field([], description="of the newest generation; parked ones, which have no place in it, count on from its size")
    generations: list[Generation] = Field([], description="the newest 100, oldest first")
    data_removal: DataRemoval | None = Field(
        None, description="somebody had its points, curves, log lines, traces, gradients, media and files deleted"
    )
    printed_curves: bool = Field(False, description="of a script: its curves are read from the lines that it prints")
    warnings: list[str] = Field(
        [],
        description="of the answer to a submission: what the coordinator sees of the job's folder, whether nodes share checkpoint.directory, and secrets among its variables",
    )
    as_of_seq: int = Field(description="the events stream continues from here")


class Resize(Schema):
    """The size that the job should have: either `nodes` or `slots`, whose number is that of its ranks."""

    nodes: Whole | None = Field(
        None,
        ge=1,
        le=MOST_NODES,
        description="so many times `resources.slots_per_node` ranks; not for a job that asks for `resources.slots`",
    )
    slots: Ranks | None = Field(None, description="for any job; a multiple of `resources.slots_per_node`, if it asks for nodes")

    @model_validator(mode="after")
    def check_one_size(self) -> Resize:
        if (self.nodes is None) == (self.slots is None):
            raise inconsistent("give nodes or slots, one of them")
        return self


class JobEdit(Schema):
    """A change of a job, whatever the job does at the moment: a JSON merge patch (RFC 7396). Fields that are left out stay."""

    name: Name | None = Field(None, description="null is as if left out")
    project: Name | None = Field(None, description="null is as if left out")
    priority: Whole | None = Field(None, ge=0, le=100, description="higher is placed first; null is as if left out")
    notes: Text | None = Field(None, max_length=10_000, description="null is as if left out")
    labels: dict[LabelName, Annotated[Text, Field(max_length=253)] | None] | None = Field(
        None, max_length=64, description="labels to add or change, and with null those to remove; others stay"
    )

    @model_validator(mode="after")
    def check_any(self) -> JobEdit:
        if not self.model_dump(exclude_none=True):
            raise inconsistent("give at least one of {names}", names=", ".join(type(self).model_fields))
        return self


class RankPlacement(Schema):
    rank: int
    node_id: str
    node_name: str
    slot: int
    place: dict[str, int] = Field({}, description="as of `Rank`")


class PlannedAxis(Schema):
    """The messages along one axis of the mesh."""

    axis: str
    ranks: int
    carries: str = Field(description="what its ranks send each other, and when: `gradients, once a step`")
    between_nodes: bool = Field(description="whether it crosses the network, because some of its groups are on several nodes")


class NetworkPlan(Schema):
    """The messages that cross the network between nodes, and those that do not."""

    ranks_by_node: list[int] = Field(description="in rank order: where the job would run now or, if it would wait, with no other job here")
    axes: list[PlannedAxis] = Field(description="axes with more than one rank, those whose ranks are closest first")
    text: str = Field(description="the same in one sentence")


class MemoryEstimate(Schema):
    """Bytes on one rank at its fullest moment of a step. The parts are those of that moment, and add up to the total."""

    parameters: int
    gradients: int
    optimizer: int
    activations: int = Field(description="what is kept for backward, and what is being worked on")
    buffers: int = Field(description="gradients packed for the exchange between ranks, parameters gathered from other ranks")
    total: int
    moment: str = Field(description="when most is held: `in the backward of the loss`")
    made_from: str = Field(description="what the estimate was made from: micro-batch, precision, copies of gradients, kind of kernels")
    note: str = Field(description="what comes on top")


class PlannedStage(Schema):
    place: int = Field(description="along the pipeline: of the rank, or in each replica the rank, that has it")
    layers: str = Field(description="in words")


class Plan(Schema):
    """The effect of a spec if it were submitted now."""

    spec: JobSpec = Field(description="the effective spec: every default filled in, and what strategy auto chose")
    choice: PlanChoice | None = Field(None, description="what strategy auto chose, and why")
    plan_hash: str = Field(description="submit with it to get a 409 if the answer would differ by then")
    world_size: int
    strategy: str
    global_batch_size: int | None
    micro_batch_size: int | None = Field(description="null for scripts, and where the job is to find it")
    micro_batches: int | None = Field(description="in a global batch, shared out over the ranks; the last one may be smaller")
    gradient_accumulation_steps: int | None = Field(description="micro-batches of the busiest rank")
    reproducible: bool = Field(description="losses and parameters are the same to the last bit on any number of ranks")
    parameter_count: int | None
    stages: list[PlannedStage] = Field([], description="of a pipeline, first to last; none where only a rank can tell")
    memory_per_rank: MemoryEstimate | None
    placement: list[RankPlacement] | None
    network: NetworkPlan | None = Field(None, description="null: one rank, or more than the nodes here hold")
    pending: Reason | None = Field(None, description="why it could not be placed now")
    warnings: list[str] = []


class LogEntry(Schema):
    seq: int = Field(description="stream position of this line, growing per job")
    rank: int
    generation: int
    time: Timestamp = Field(description="when the line was printed, as its agent saw it")
    level: Literal["debug", "info", "warning", "error"]
    text: str
    overwrites: bool = Field(False, description="it takes the place of the line before it of the same rank, as a progress bar does")
    context: bool = Field(False, description="it does not match, and is there as context of a line that does")


class LogPage(Schema):
    items: list[LogEntry]
    next_after: int = Field(description="pass as after= to read on")
    next_before: int | None = Field(None, description="pass as before= to read further back; null: nothing earlier matches")
    at_end: bool = Field(False, description="no later line that matches is stored")
    arriving: bool = Field(False, description="the job has ended, and its last lines are still on their way")
    complete: bool = Field(description="the job has ended and every line is stored: nothing will follow")
