# Generated from dashboard/openapi.json by scripts/generate_cli_types.py: do not edit.

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct, field


class Actor(Struct, frozen=True, kw_only=True):
    name: str
    id: str = ""
    kind: str = ""


class ApiKey(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    prefix: str
    role: str
    """what the key may do at most; never more than its user"""
    created_at: datetime | None = None
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    parent_id: str | None = None
    """the key that made it: it ends no later than that one, and is revoked with it"""
    revoked_at: datetime | None = None
    user_id: str = ""
    user_name: str = ""


class Artifact(Struct, frozen=True, kw_only=True):
    id: str
    rank: int
    generation: int
    first_step: int
    last_step: int
    state: str
    bytes: int
    created_at: datetime
    error: str | None = None
    """why there is no file"""
    job_id: str = ""
    kind: str = ""
    """trace: of torch.profiler, in Chrome's format, for https://ui.perfetto.dev or chrome://tracing; gradients: a rank's record of a step, which `gradients/{step}` reads; snapshot: its gradients by name, as torch.save writes them; file: left in $PACELINE_ARTIFACTS"""
    name: str = ""
    """of the file"""
    path: str | None = None
    """of a file in $PACELINE_ARTIFACTS: where `files` has it"""
    request_id: str | None = None
    """of the request for it while the job runs; null: the job's spec asked for it"""
    sha256: str = ""


class AuditEntry(Struct, frozen=True, kw_only=True):
    time: datetime
    user_name: str
    action: str
    message: str
    address: str | None = None
    job_id: str | None = None
    node_id: str | None = None
    seq: int = 0
    user_id: str = ""
    via: str | None = None


class AutoscaleSettings(Struct, frozen=True, kw_only=True):
    """Leave it to the coordinator how many nodes a pool has: between `min_nodes` and `max_nodes`, as jobs need them."""

    budget_node_hours: float | None = None
    """Grow no more once its nodes have run for so many hours in a calendar month (UTC)."""
    containers: bool = False
    """Set if its nodes have podman, docker or apptainer, for jobs with `environment.image`. Default: as the nodes that it has had."""
    cost: float = 1.0
    """Price of a node for an hour, in any unit that your pools share: the cheapest pool grows first."""
    device: str = "cuda"
    """Device of the slots of its nodes, which a pool without nodes cannot tell."""
    discards_checkpoints: bool = False
    """Drain idle nodes of `ssh` and `kubernetes` although the checkpoints in their own folders are deleted with them. Default: the pool needs a folder for checkpoints that outlives its nodes."""
    idle_seconds: float = 300.0
    """Drain a node that no job has used for so many seconds."""


class AxisTraffic(Struct, frozen=True, kw_only=True):
    """The bytes that one rank sends to others, as the algorithms that carry them do."""

    axis: str
    """of the mesh; world: losses, requests and norms, between all ranks"""
    rank: int
    """the one that sends most along this axis"""
    bytes_per_step: float
    """that it sends, in the mean of the generation's steps"""
    bytes_per_second: float | None = None
    """of the step: a link that carries just that much is never idle"""


class BadLoss(Struct, frozen=True, kw_only=True):
    """A loss that was NaN, infinite or a spike, and its consequence."""

    what: str
    """in words, with the step"""
    done: str
    """in words"""
    act: str = ""
    """what was done: the policy of fault_tolerance.on_nan or on_spike"""
    kind: str = ""
    sample_ids: list[int] = field(default_factory=list)
    """the first samples of the micro-batches whose loss it was; the event has more. Empty: not known, as for scripts"""
    samples: int = 0
    """how many samples those micro-batches have"""
    step: int = 0


class BrowserSession(Struct, frozen=True, kw_only=True):
    """A browser that is signed in to the dashboard."""

    id: str
    user_name: str
    expires_at: datetime
    address: str | None = None
    created_at: datetime | None = None
    current: bool = False
    """the session that asks"""
    device: str | None = None
    """browser and system, as the browser names them"""
    key_prefix: str | None = None
    """of the key that signed in: the session ends with it"""
    last_used_at: datetime | None = None
    """to the minute"""
    signed_in_by: str | None = None
    """null: before this was recorded"""
    user_id: str = ""


class Bubble(Struct, frozen=True, kw_only=True):
    """The idle time of a pipeline, as a share of a step."""

    formula: float
    """of its schedule, were all stages and passes equally long and transfers free"""
    text: str
    measured: float | None = None
    """in which its ranks computed nothing, in the mean; null: no step is done yet"""


class BundleChanges(Struct, frozen=True, kw_only=True):
    """Files by which a bundle differs from another one: of each list the first two hundred."""

    added: list[str]
    removed: list[str]
    changed: list[str]
    """with other content, or executable in one of them only"""
    count: int
    """of all files that differ, also those that the lists leave out"""
    since: str = ""
    """digest of the bundle that it is compared with"""


class CheckpointUser(Struct, frozen=True, kw_only=True):
    job_id: str
    job_name: str


class CommunicationChoice(Struct, frozen=True, kw_only=True):
    text: str
    """a sentence: how gradients are summed, and why"""
    links: str
    """what probes of the links have found, as text"""
    between: Any = None
    """between machines; null: there is one, or it was not measured by itself"""
    name: str = ""
    options: list[Any] = field(default_factory=list)
    """all that could be chosen, the default first"""
    step: int = 0
    """after which it was decided"""
    waited_seconds: float = 0.0
    """of a step by the default way, waiting for sums"""
    why: str = ""
    """faster, not_faster, nothing_to_gain, no_longer_faster or loss"""
    within: Any = None
    """between the ranks of a machine; null: not measured by itself"""


class Convergence(Struct, frozen=True, kw_only=True):
    """The loss of a configuration beside that of the single process with the same other values."""

    configuration: int
    reference: int
    text: str
    at_samples: int = 0
    """samples that both have seen; losses are means over the last tenth of them, medians over repeats"""
    at_seconds: float | None = None
    """training time that both have had"""
    loss: float = 0.0
    loss_at_time: float | None = None
    reference_loss: float = 0.0
    reference_loss_at_time: float | None = None
    same: bool = False
    """equal to rounding at equal samples"""


class CostCheck(Struct, frozen=True, kw_only=True):
    """The cost model beside a configuration that was measured."""

    configuration: int
    measured_seconds: float
    predicted_seconds: float
    error: float
    """predicted / measured - 1"""


class Curve(Struct, frozen=True, kw_only=True):
    """
    One metric of one rank within one generation, columnar: index i of every list is bucket i.

    `bucket_steps` 1 means raw points (minimum = maximum = mean = last).
    """

    name: str
    rank: int
    generation: int
    steps: list[int]
    """last step in the bucket"""
    last: list[float | str]
    bucket_steps: int = 0
    count: list[int] = field(default_factory=list)
    """points in the bucket"""
    maximum: list[float | str] = field(default_factory=list)
    mean: list[float | str] = field(default_factory=list)
    minimum: list[float | str] = field(default_factory=list)
    nan_count: list[int] = field(default_factory=list)
    """points in the bucket that were NaN; minimum, maximum and mean are of the others"""
    times: list[float] = field(default_factory=list)
    """seconds since the epoch of the last point"""
    unit: str = ""


class DataRemoval(Struct, frozen=True, kw_only=True):
    """The data of an ended job is deleted; the job itself stays."""

    state: str
    asked_by: str
    asked_at: datetime | None = None
    checkpoints: bool = False
    """its checkpoints as well; else they follow the job's checkpoint policy"""
    job_id: str = ""
    removed_at: datetime | None = None
    removed_bytes: int = 0
    """so far, of the database; checkpoints lie elsewhere"""


class DiskState(Struct, frozen=True, kw_only=True):
    free_bytes: int
    total_bytes: int
    low_bytes: int
    """the watermark: below it points, log lines and files wait on their nodes"""
    low: bool


class Effect(Struct, frozen=True, kw_only=True):
    """A value instead of another one, in all pairs of configurations that differ in nothing else: more pairs show what few repeats cannot."""

    path: str
    figure: str
    pairs: list[list[Any]]
    """indices of the compared configurations"""
    text: str
    first: Any = None
    """value of the path; for columns that change together the values, in the order of the paths"""
    is_difference: bool = False
    """p under 0.05 after the correction"""
    largest_ratio: float = 0.0
    p_value: float | None = None
    """of a permutation test within the pairs, corrected by Holm; None: too few repeats and pairs"""
    ratio: float = 0.0
    """second over first: the median of the pairs' ratios of medians"""
    second: Any = None
    smallest_ratio: float = 0.0


class Estimate(Struct, frozen=True, kw_only=True):
    """A median over repeats with a bootstrap interval; the interval is None where there is one value."""

    value: float
    count: int
    """trials that it is the median of"""
    high: float | None = None
    low: float | None = None
    """of the 95 % bootstrap interval of the median"""


class Event(Struct, frozen=True, kw_only=True):
    seq: int
    time: datetime
    type: str
    message: str
    actor: Actor | None = None
    cause: str = ""
    data: Any = field(default_factory=dict)
    generation: int | None = None
    job_id: str | None = None
    node_id: str | None = None


class Failure(Struct, frozen=True, kw_only=True):
    """One rank's end; the causing one carries those of the other ranks."""

    kind: str
    rank: int
    node_name: str
    message: str
    exception: str = ""
    exit_code: int | None = None
    generation: int = 0
    last_lines: list[str] = field(default_factory=list)
    share: str = "victim"
    """of a rank beside the causing one: dragged down by it, of the same failure, or of another one of its own"""
    signal: str | None = None
    step: int = 0
    traceback: str = ""
    users_traceback: str = ""
    """the traceback without the frames of libraries; empty: none is the user's"""
    victims: list[Failure] = field(default_factory=list)
    where: str = ""
    """the line of the user's code that raised it, as `loss in train.py:22`; empty: not known"""


class FigureDifference(Struct, frozen=True, kw_only=True):
    """Two configurations that differ in one value, compared in one figure."""

    first: int
    """index of a configuration"""
    second: int
    path: str
    """the value that differs"""
    figure: str
    """samples_per_second, peak_memory_bytes, metric, ..."""
    ratio: float
    """second over first"""
    text: str
    is_difference: bool = False
    """p under 0.05 after the correction"""
    p_value: float | None = None
    """of a permutation test, corrected for the number of comparisons in this figure (Holm 1979); None: too few repeats"""


class Fit(Struct, frozen=True, kw_only=True):
    """
    A law fitted by least squares of the relative errors: to configurations that are equal in all but the number of ranks, alpha_beta to all of
    one strategy.

    Of amdahl, `measured` and `fitted` are seconds of a step, of gustafson samples per second, of alpha_beta seconds of exposed communication.
    """

    law: str
    series: str
    text: str
    fitted: list[float] = field(default_factory=list)
    measured: list[float] = field(default_factory=list)
    parameters: dict[str, float] = field(default_factory=dict)
    """amdahl, gustafson: serial_share; alpha_beta: latency_seconds, bytes_per_second"""
    ranks: list[int] = field(default_factory=list)
    worst_residual: float = 0.0
    """largest |fitted / measured - 1|"""


class Generation(Struct, frozen=True, kw_only=True):
    generation: int
    world_size: int
    started_at: datetime
    at_boundary: bool = False
    """made of ranks that left the generation before it in good order, after a step"""
    end_reason: str | None = None
    ended_at: datetime | None = None
    first_step_at: datetime | None = None
    restored_checkpoint_id: str | None = None
    start_step: int | None = None
    """the step that it goes on from; null for a script that has not told it"""


class GpuReading(Struct, frozen=True, kw_only=True):
    """The readings of a GPU. null: the card does not tell, which is not zero."""

    node_id: str
    node_name: str
    index: int
    name: str
    age_seconds: float
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    error: str | None = None
    job_id: str | None = None
    """of the job whose rank holds the card's slot; null: none does"""
    job_name: str | None = None
    memory_clock_mhz: float | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    nvlink_received_bytes_per_second: float | None = None
    nvlink_sent_bytes_per_second: float | None = None
    pcie_received_bytes_per_second: float | None = None
    pcie_sent_bytes_per_second: float | None = None
    power_limit_watts: float | None = None
    power_watts: float | None = None
    processes: dict[str, int] = field(default_factory=dict)
    rank: int | None = None
    sm_clock_mhz: float | None = None
    temperature_celsius: float | None = None
    throttle_reasons: list[str] = field(default_factory=list)
    utilization_percent: float | None = None
    uuid: str = ""


class GpuStatus(Struct, frozen=True, kw_only=True):
    gpus: list[GpuReading]
    nodes_without_gpu: list[str] = field(default_factory=list)
    """names of nodes that say "no GPU\""""


class GradientRecordState(Struct, frozen=True, kw_only=True):
    rank: int
    state: str
    error: str | None = None
    """why there is no record"""
    snapshot_id: str | None = None
    """artifact with this rank's gradients: a file of torch.save, by name; null: there is none"""


class GradientStep(Struct, frozen=True, kw_only=True):
    step: int
    generation: int
    """the newest that has recorded this step"""
    ready: int
    """ranks whose record is there"""
    arriving: int
    failed: int


class HangNotice(Struct, frozen=True, kw_only=True):
    """The job seems to hang. Withdrawn with the next output or step."""

    since: datetime
    """the last output or step of any rank"""
    message: str
    differs: list[int] = field(default_factory=list)
    """as of `JobStacks`"""
    ends: bool = False
    """fault_tolerance.hang_seconds is given: its ranks are ended"""
    told_at: datetime | None = None


class JobMetrics(Struct, frozen=True, kw_only=True):
    names: list[str]
    """every metric this job has reported"""
    curves: list[Curve]
    """at most 2,000 buckets per name and rank, over all its generations together"""
    as_of_seq: int = 0
    """the metrics stream continues from here"""
    cards: list[Any] = field(default_factory=list)
    """readings of each rank's own card, as `cards` asks for"""
    first_step: int | None = None
    job_id: str = ""
    last_step: int | None = None


class LeftFile(Struct, frozen=True, kw_only=True):
    """A file that a rank left in $PACELINE_ARTIFACTS; of each path the newest version is kept."""

    path: str
    """in the job, the folder of the rank first: rank0/eval/scores.csv"""
    name: str
    rank: int
    bytes: int
    sha256: str
    changed_at: datetime
    """on its node"""
    generation: int = 0
    """in which the rank's process started"""
    id: str = ""
    media_type: str = ""
    """as the content is served; never one that a browser would run"""
    stored_at: datetime | None = None


class LeftFolder(Struct, frozen=True, kw_only=True):
    """A folder, with all that is below it."""

    path: str
    name: str
    files: int
    bytes: int
    changed_at: datetime


class ListedCheckpoint(Struct, frozen=True, kw_only=True):
    """A checkpoint in the list over all jobs, with what one needs to know of its job."""

    id: str
    job_id: str
    job_name: str
    job_state: str
    step: int
    state: str
    bytes: int
    best: bool
    """the best of its job by the policy's metric"""
    latest: bool
    pinned: bool
    created_at: datetime
    created_by: str = ""
    created_by_id: str | None = None
    """the user whose job it is; null: nobody's but the admins'"""
    damage: str | None = None
    deleted_next: bool = False
    """what retention would delete when the next one is saved"""
    directory: str = ""
    generation: int = 0
    manifest_sha256: str = ""
    metrics: dict[str, float | str] = field(default_factory=dict)
    parameters_sha256: str | None = None
    """of parameters and buffers, the same whatever world saved them"""
    slowdown: float | None = None
    """how many times as long steps took while it was written; null where none did, or none to compare"""
    stall_seconds: float | None = None
    """that training waited for it; null where no rank lived to report what it cost"""
    used_by: list[CheckpointUser] = field(default_factory=list)
    """jobs that were started from it and have not ended"""
    write_seconds: float | None = None
    """until the slowest rank had its part on disk, hashed"""


class LogEntry(Struct, frozen=True, kw_only=True):
    seq: int
    """stream position of this line, growing per job"""
    rank: int
    time: datetime
    """when the line was printed, as its agent saw it"""
    level: str
    text: str
    context: bool = False
    """it does not match, and is there as context of a line that does"""
    generation: int = 0
    overwrites: bool = False
    """it takes the place of the line before it of the same rank, as a progress bar does"""


class LogPage(Struct, frozen=True, kw_only=True):
    items: list[LogEntry]
    next_after: int
    """pass as after= to read on"""
    arriving: bool = False
    """the job has ended, and its last lines are still on their way"""
    at_end: bool = False
    """no later line that matches is stored"""
    complete: bool = False
    """the job has ended and every line is stored: nothing will follow"""
    next_before: int | None = None
    """pass as before= to read further back; null: nothing earlier matches"""


class LoggedHistogram(Struct, frozen=True, kw_only=True):
    """Counts of finite values by bin, with one edge more than counts; the statistics are of the finite values."""

    edges: list[float]
    counts: list[int]
    values: int
    """finite or not"""
    nans: int
    infs: int
    least: float | None = None
    mean: float | None = None
    most: float | None = None
    std: float | None = None


class LoggedImage(Struct, frozen=True, kw_only=True):
    """An image, whose file is at `media/{id}/images/{number}`, with the id of its object."""

    number: int
    width: int
    height: int
    caption: str
    format: str


class LoggedTable(Struct, frozen=True, kw_only=True):
    columns: list[str]
    rows: list[list[str | int | float | bool | None]]
    """the first 10,000; NaN and the infinities are "NaN", "Infinity", "-Infinity\""""
    total_rows: int
    """as many as were logged"""


class MediaKey(Struct, frozen=True, kw_only=True):
    """A key under which something is logged. Steps that a recovery takes back are left out until they are done again."""

    key: str
    kind: str
    steps: list[int]
    """in order"""
    ranks: list[int]
    bytes: int


class MediaObject(Struct, frozen=True, kw_only=True):
    """An object that one rank logged under a key at a step. `error`: why its content cannot be read."""

    id: str
    rank: int
    images: list[LoggedImage]
    error: str | None = None
    histogram: LoggedHistogram | None = None
    table: LoggedTable | None = None


class MemoryEstimate(Struct, frozen=True, kw_only=True):
    """Bytes on one rank at its fullest moment of a step. The parts are those of that moment, and add up to the total."""

    total: int
    activations: int = 0
    """what is kept for backward, and what is being worked on"""
    buffers: int = 0
    """gradients packed for the exchange between ranks, parameters gathered from other ranks"""
    gradients: int = 0
    made_from: str = ""
    """what the estimate was made from: micro-batch, precision, copies of gradients, kind of kernels"""
    moment: str = ""
    """when most is held: `in the backward of the loss`"""
    note: str = ""
    """what comes on top"""
    optimizer: int = 0
    parameters: int = 0


class MetricComparison(Struct, frozen=True, kw_only=True):
    """One metric at the steps that both runs have recorded: compared as bits."""

    name: str
    compared: int
    equal: int
    first_difference: Any = None
    largest_relative_difference: float | str | None = None
    """0 where all are equal"""
    only_in_one: int = 0
    """steps up to the shorter run's end that only one of them has"""


class ModelVersion(Struct, frozen=True, kw_only=True):
    model: str
    number: int
    job_id: str
    job_name: str
    step: int | None
    bytes: int
    aliases: list[str]
    download: str
    """address of its content: add format=safetensors for the weights of a checkpoint"""
    created_at: datetime
    checkpoint_id: str | None = None
    created_by: str = ""
    metrics: dict[str, float | str] = field(default_factory=dict)
    """of the checkpoint's step"""
    notes: str = ""
    path: str | None = None
    """of the file in the job's artifacts, where it is no checkpoint"""
    sha256: str = ""
    """of the file, or of the checkpoint's manifest"""


class NodeLaunch(Struct, frozen=True, kw_only=True):
    """A node that a provider is to start, or has failed to."""

    id: str
    name: str
    """that its node will have"""
    state: str
    command: str | None = None
    """what to run on the new machine, where people start the nodes; shown once"""
    created_at: datetime | None = None
    failure: str = ""
    """why it was given up; empty: it was not"""
    handle: str | None = None
    """its provider's own name for it"""
    pool: str | None = None
    provider: str = ""
    reason: str = ""
    """where it waits"""
    remedy: str = ""
    """the way out"""
    requested_by: str = ""
    state_since: datetime | None = None
    wanted: bool = False
    """false: it was cancelled or removed, and is being ended"""


class NotificationDelivery(Struct, frozen=True, kw_only=True):
    id: str
    """also the header Idempotency-Key of its requests"""
    channel_name: str
    event: str
    """one of a rule's events, test or digest"""
    title: str
    state: str
    attempts: int
    created_at: datetime
    answer: str | None = None
    """to the newest attempt; null: there was none"""
    channel_id: str = ""
    digest_id: str | None = None
    """the delivery that carried it as one line of a digest; null: it went alone"""
    finished_at: datetime | None = None
    job_id: str | None = None
    next_attempt_at: datetime | None = None
    """null: none follows"""
    rule_id: str | None = None
    """null: a test, a digest, or sent again by hand"""


class NotificationRule(Struct, frozen=True, kw_only=True):
    id: str
    channel_name: str
    text: str
    """the rule in words"""
    channel_id: str = ""
    created_at: datetime | None = None
    created_by: str = ""
    created_by_id: str | None = None
    events: list[str] = field(default_factory=list)
    goodput_below: float | None = None
    owner_id: str | None = None
    """the user whose jobs alone it is about; null: everybody's"""
    project: str | None = None
    queued_minutes: int | None = None


class Outlier(Struct, frozen=True, kw_only=True):
    trial: int
    figure: str
    value: float
    text: str
    job_id: str | None = None
    median: float = 0.0


class PeakMemory(Struct, frozen=True, kw_only=True):
    rank: int
    bytes: float
    """allocated on the GPU, or resident in the CPU's memory, since the rank's process began"""


class Phase(Struct, frozen=True, kw_only=True):
    name: str
    seconds: float
    under_way: bool = False
    """the incident is open and this is where it is"""


class PlanOption(Struct, frozen=True, kw_only=True):
    name: str
    """`shard 4 x replicate 2, full activation checkpointing, micro-batches of 2`"""
    memory_bytes: int
    """of one rank at its fullest moment, estimated"""
    step_seconds: float
    """estimated: to rank plans by, not a promise"""
    activation_checkpointing: str = ""
    axes: str = ""
    """`shard 4 x replicate 2`"""
    micro_batch_size: int = 0
    why: str = ""
    """why it was not chosen; empty for the one that was"""


class PlannedAxis(Struct, frozen=True, kw_only=True):
    """The messages along one axis of the mesh."""

    axis: str
    ranks: int
    between_nodes: bool = False
    """whether it crosses the network, because some of its groups are on several nodes"""
    carries: str = ""
    """what its ranks send each other, and when: `gradients, once a step`"""


class PlannedConfiguration(Struct, frozen=True, kw_only=True):
    values: Any
    world_size: int
    baseline: bool = False
    memory_bytes: int | None = None
    """estimate for the fullest rank"""
    refusal: str | None = None
    repeats: int = 0


class PlannedStage(Struct, frozen=True, kw_only=True):
    place: int
    """along the pipeline: of the rank, or in each replica the rank, that has it"""
    layers: str
    """in words"""


class Prediction(Struct, frozen=True, kw_only=True):
    """The cost model's time of a step on machines that were not measured."""

    configuration: int
    """of the same strategy and values, measured here"""
    ranks: int
    step_seconds: float
    samples_per_second: float
    efficiency: float
    assumptions: str = ""
    peak_memory_bytes: float | None = None


class ProfileRequest(Struct, frozen=True, kw_only=True):
    """A trace that was asked for while the job runs. It belongs to one generation, and ends with it."""

    id: str
    ranks: list[int]
    state: str
    """missed: its generation ended before every rank had answered"""
    answered: list[int] = field(default_factory=list)
    """ranks that have answered, with a trace or with the reason why there is none"""
    created_at: datetime | None = None
    created_by: str = ""
    generation: int = 0
    job_id: str = ""
    steps: int = 0


class Pruned(Struct, frozen=True, kw_only=True):
    """The rung at which a halving pruned trials of a configuration, of those that came furthest, and the metric there."""

    step: int
    """at which they were pruned"""
    metric: Estimate | None = None
    """the experiment's metric at that step; None: not finite"""


class Rank(Struct, frozen=True, kw_only=True):
    rank: int
    node_name: str
    slot: int
    state: str
    card: int | None = None
    """the driver's index of the GPU that it holds; null: a CPU slot, or it has not started yet"""
    exit_code: int | None = None
    generation: int = 0
    heartbeat_age_seconds: float | None = None
    """since the rank last made progress or spoke; null before, and after its end"""
    node_id: str = ""
    parked: bool = False
    """holds a slot and waits for a place: a spare, or a rank that is to join"""
    pid: int | None = None
    place: dict[str, int] = field(default_factory=dict)
    """in the mesh: by axis of more than one rank, its number along it, from 0"""
    signal: str | None = None
    step: int = 0


class RankGradient(Struct, frozen=True, kw_only=True):
    """One rank's gradient of one parameter, before ranks exchange gradients."""

    rank: int
    elements: int
    norm: float | None
    """L2; null: an element is not finite"""
    zeros: int
    nans: int
    infs: int
    shape: list[int] = field(default_factory=list)
    """of what the rank has"""


class RankPlacement(Struct, frozen=True, kw_only=True):
    rank: int
    node_name: str
    slot: int
    node_id: str = ""
    place: dict[str, int] = field(default_factory=dict)
    """as of `Rank`"""


class Reason(Struct, frozen=True, kw_only=True):
    """Why something is not happening: always with what is missing and what would help."""

    code: str
    text: str
    missing: str | None = None
    nearest_fit: str | None = None
    next_step: str | None = None
    no_launch: str | None = None
    """why the autoscaler launches no node for it; null: it does, or no pool has autoscale"""


class RegisteredModel(Struct, frozen=True, kw_only=True):
    name: str
    versions: list[ModelVersion]
    """the newest first"""
    created_at: datetime | None = None
    created_by: str = ""


class ReplacedExperiment(Struct, frozen=True, kw_only=True):
    """An experiment that is there already, and would get the grid that is planned."""

    id: str
    cancels: int = 0
    """its trials that the new grid lacks and whose jobs have not ended: they would be cancelled"""
    created_by: Actor | None = None


class RequestedGradients(Struct, frozen=True, kw_only=True):
    """Gradients of one step that were asked for while the job runs. The request belongs to one generation, and ends with it."""

    id: str
    job_id: str
    ranks: int
    """how many are asked: all"""
    answered: int
    """how many have answered, with a record or with the reason why there is none"""
    state: str
    """missed: its generation ended before every rank had answered"""
    created_at: datetime | None = None
    created_by: str = ""
    generation: int = 0
    names: list[str] = field(default_factory=list)
    snapshots: bool = False
    step: int | None = None
    """the step that is recorded, the same on all ranks; null: no rank has answered yet"""


class RotatedKey(Struct, frozen=True, kw_only=True):
    key_id: str
    """of the key that everything is sealed with now"""
    secrets: int
    """how many values of secrets were sealed anew"""
    channels: int
    """how many channels of notifications were sealed anew"""
    dropped: list[str]
    """secrets, as project/name, and channels that could not be opened and are gone"""
    deleted_keys: int
    """how many older keys were deleted; those in PACELINE_SECRETS_KEY are deleted by hand"""


class SampleRange(Struct, frozen=True, kw_only=True):
    """Steps that follow each other in one generation, and the places of the endless line of samples that they used."""

    generation: int
    first_step: int
    last_step: int
    first_sample: int
    """place in the line, counted from 0 over all epochs"""
    samples: int
    epoch: int | None = None
    """of the first place, from 0; null where the size of the data is not known"""


class SavedFile(Struct, frozen=True, kw_only=True):
    """
    The newest file below a script's working directory that looks like a checkpoint, whichever program wrote it: Paceline can neither
    verify nor load it.
    """

    path: str
    """on the node of rank 0: a file, or a folder of them"""
    bytes: int
    time: datetime
    """when it was last written to"""
    step: int | None = None
    """the one in its name; null: the name has none"""


class Secret(Struct, frozen=True, kw_only=True):
    """A secret without its value."""

    project: str
    name: str
    """of the variable that ranks get"""
    updated_by: str
    updated_at: datetime
    created_at: datetime | None = None
    created_by: str = ""


class Sentence(Struct, frozen=True, kw_only=True):
    """A sentence of the interpretation."""

    kind: str
    text: str
    configurations: list[int] = field(default_factory=list)


class Series(Struct, frozen=True, kw_only=True):
    """Losses of one configuration, thinned to at most 500 points for a figure."""

    configuration: int
    trial: int
    steps: list[int]
    losses: list[float | None] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


class SilentNode(Struct, frozen=True, kw_only=True):
    """A node with ranks of the job whose agent has not been heard of for some time. Withdrawn with its next heartbeat."""

    node_name: str
    message: str
    """in words, with its ranks, and what follows"""
    node_id: str = ""
    since: datetime | None = None
    """when it was last heard of"""


class SlotUse(Struct, frozen=True, kw_only=True):
    index: int
    job_id: str | None = None
    job_name: str | None = None
    rank: int | None = None


class SpecDifference(Struct, frozen=True, kw_only=True):
    text: str
    changes_numbers: bool
    """a run with the other value may give other numbers"""
    path: str = ""
    """dotted path into the spec"""
    values: list[str] = field(default_factory=list)
    """as JSON, one for each of the two jobs; 'absent' where it is not there"""


class StackFrame(Struct, frozen=True, kw_only=True):
    function: str
    file: str
    """of a library, from its package on"""
    line: int
    own: bool = False
    """the user brought this file"""


class StackThread(Struct, frozen=True, kw_only=True):
    name: str
    frames: list[StackFrame] = field(default_factory=list)
    """the innermost first"""


class StateCount(Struct, frozen=True, kw_only=True):
    state: str
    count: int


class StepTime(Struct, frozen=True, kw_only=True):
    name: str
    seconds: float
    share: float
    """of the step"""


class StoredJob(Struct, frozen=True, kw_only=True):
    job_id: str
    name: str
    state: str
    bytes: int
    """points, curves and log lines"""
    ended: bool
    """its data can be deleted"""


class StoredKind(Struct, frozen=True, kw_only=True):
    kind: str
    rows: int
    bytes: int
    """in the database, indexes included: an estimate"""


class TimePart(Struct, frozen=True, kw_only=True):
    cause: str
    seconds: float
    share: float
    """of the wall time"""
    text: str = ""
    """what the cause means"""


class TrialCounts(Struct, frozen=True, kw_only=True):
    total: int
    """those included that a search has not drawn yet"""
    cancelled: int = 0
    completed: int = 0
    failed: int = 0
    paused: int = 0
    pruned: int = 0
    """stopped early by the halving"""
    refused: int = 0
    """configurations that the planner does not take; never run"""
    running: int = 0
    waiting: int = 0
    """their jobs are queued, or not submitted yet, or not drawn yet by the search"""


class TrialJob(Struct, frozen=True, kw_only=True):
    """The job of a trial, as a table of trials shows it."""

    id: str
    name: str
    state: str
    end_reason: str | None = None
    loss: float | None = None
    samples_per_second: float | None = None
    """median of the steps by now, without the first ones, which warm up"""
    step: int = 0
    total_steps: int | None = None


class User(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    role: str
    created_at: datetime
    disabled: bool = False
    last_active_at: datetime | None = None
    """to the minute; null: not since this is recorded"""


class Utilization(Struct, frozen=True, kw_only=True):
    """MFU: the model's arithmetic, forward and backward, over what the devices could do at most."""

    text: str
    devices: list[str] = field(default_factory=list)
    """as their driver names them, each once"""
    flops_per_sample: float | None = None
    flops_per_second: float | None = None
    """that the model needed of all ranks together, whatever their peak is"""
    formula: str | None = None
    """how the model's arithmetic is counted, with its numbers"""
    peak_flops: float | None = None
    """per second, of all ranks together"""
    sources: list[str] = field(default_factory=list)
    """where the peaks are from"""
    value: float | None = None
    """null: not known, and `text` says why"""


class WithheldJob(Struct, frozen=True, kw_only=True):
    """A pending job that the autoscaler launches no node of a pool for."""

    job_id: str
    job_name: str
    reason: str


class Checkpoint(Struct, frozen=True, kw_only=True):
    id: str
    step: int
    state: str
    bytes: int
    best: bool
    """the best of its job by the policy's metric"""
    latest: bool
    pinned: bool
    created_at: datetime
    damage: str | None = None
    deleted_next: bool = False
    """what retention would delete when the next one is saved"""
    directory: str = ""
    generation: int = 0
    job_id: str = ""
    manifest_sha256: str = ""
    metrics: dict[str, float | str] = field(default_factory=dict)
    parameters_sha256: str | None = None
    """of parameters and buffers, the same whatever world saved them"""
    slowdown: float | None = None
    """how many times as long steps took while it was written; null where none did, or none to compare"""
    stall_seconds: float | None = None
    """that training waited for it; null where no rank lived to report what it cost"""
    used_by: list[CheckpointUser] = field(default_factory=list)
    """jobs that were started from it and have not ended"""
    write_seconds: float | None = None
    """until the slowest rank had its part on disk, hashed"""


class ClusterSummary(Struct, frozen=True, kw_only=True):
    nodes: list[StateCount]
    jobs: list[StateCount]
    slots_total: int
    slots_used: int
    slots_free: int
    gpus: int
    cpu_percent: float | None = None
    gpu_memory_total_bytes: int = 0
    gpu_memory_used_bytes: int = 0
    gpu_percent: float | None = None
    """mean utilization of the cards that were read; null: none was"""
    gpu_power_watts: float | None = None
    """of all cards that tell theirs; null: none does"""
    memory_total_bytes: int = 0
    memory_used_bytes: int = 0
    samples_per_second: float = 0.0
    """of all running jobs; those whose samples have no tokens count here only"""
    tokens_per_second: float = 0.0
    updated_at: datetime | None = None


class Comparison(Struct, frozen=True, kw_only=True):
    """The comparison of one job with the first one that was named."""

    text: str
    """the verdict in words to quote"""
    same_run: bool
    """every step that both have is equal to the last bit, and so are the parameters where both have a hash"""
    jobs: list[Any] = field(default_factory=list)
    """the two of them, the first one first"""
    metrics: list[MetricComparison] = field(default_factory=list)
    parameters: Any = None
    spec_differences: list[SpecDifference] = field(default_factory=list)
    verdict: str = ""


class ComparisonReport(Struct, frozen=True, kw_only=True):
    items: list[Comparison]


class Configuration(Struct, frozen=True, kw_only=True):
    """One combination of values with all its repeats."""

    index: int
    """in the order of the grid"""
    label: str
    """its varied values in words, as `fsdp, 2 ranks, batch 32`"""
    world_size: int
    strategy: str
    baseline: bool = False
    bubble: Estimate | None = None
    bytes_per_step: Estimate | None = None
    completed: int = 0
    efficiency: Estimate | None = None
    """speedup over the number of ranks; 1 is ideal"""
    energy_joules: Estimate | None = None
    exposed_communication: Estimate | None = None
    """share of a step"""
    goodput: Estimate | None = None
    metric: Estimate | None = None
    """the experiment's metric at the last step of the trials that completed"""
    pareto: bool = False
    """no other configuration is better in speed, peak memory and the metric at once"""
    parts: dict[str, float] = field(default_factory=dict)
    """seconds of a step by name, medians over the repeats"""
    peak_memory_bytes: Estimate | None = None
    predicted_step_seconds: float | None = None
    """of the cost model, fitted to all trials; None: it has no prediction"""
    pruned: Pruned | None = None
    """of the trials that the halving stopped early; None: there are none"""
    refusal: str | None = None
    samples_per_second: Estimate | None = None
    slot_hours: Estimate | None = None
    speedup: Estimate | None = None
    """over the single process of the same other values (for weak scaling of the samples per second)"""
    step_seconds: Estimate | None = None
    tokens_per_second: Estimate | None = None
    trials: list[int] = field(default_factory=list)
    """indices of its trials"""
    values: Any = None


class Experiment(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    state: str
    analyzed_at: datetime | None = None
    axes: list[str] = field(default_factory=list)
    """what varies: paths, and world_size"""
    best_metric: float | None = None
    """the metric of that trial"""
    best_trial: int | None = None
    """index of the trial with the best metric at its last step; of a halving, at the highest rung"""
    created_at: datetime | None = None
    created_by: Actor | None = None
    description: str = ""
    ended_at: datetime | None = None
    headline: Sentence | None = None
    """the recommendation of the newest analysis; null: not analyzed yet"""
    labels: dict[str, str] = field(default_factory=dict)
    project: str = ""
    revision: int = 0
    seconds_left: float | None = None
    """estimate from the trials that ended; null: none has, or it rests"""
    slot_hours: float = 0.0
    """used so far"""
    spec: Any = None
    trials: TrialCounts | None = None
    waits_for: Reason | None = None
    """why no trial runs"""


class ExperimentPlan(Struct, frozen=True, kw_only=True):
    """The trials that a spec comes to, none of which has run."""

    trials: int
    configurations: list[PlannedConfiguration]
    axes: list[str] = field(default_factory=list)
    by_earlier_jobs: bool = False
    """the estimate goes by other jobs of the same model and data, since no trial has ended"""
    errors: list[Any] = field(default_factory=list)
    """what is wrong with the job spec that all begin with"""
    not_planned: int = 0
    """the last so many configurations, which the planner was not asked about: a plan of so many takes long"""
    refused: int = 0
    replaces: ReplacedExperiment | None = None
    """the experiment of this project and name that would get this grid"""
    seconds: float | None = None
    """estimate with the slots of today; null: no time of a step is known"""
    slot_hours: float | None = None


class ExperimentSummary(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    state: str
    axes: list[str] = field(default_factory=list)
    """what varies: paths, and world_size"""
    best_metric: float | None = None
    """the metric of that trial"""
    best_trial: int | None = None
    """index of the trial with the best metric at its last step; of a halving, at the highest rung"""
    created_at: datetime | None = None
    created_by: Actor | None = None
    description: str = ""
    ended_at: datetime | None = None
    labels: dict[str, str] = field(default_factory=dict)
    project: str = ""
    revision: int = 0
    seconds_left: float | None = None
    """estimate from the trials that ended; null: none has, or it rests"""
    slot_hours: float = 0.0
    """used so far"""
    trials: TrialCounts | None = None


class FolderPage(Struct, frozen=True, kw_only=True):
    """One folder of a job's files: its folders, and a page of its files."""

    prefix: str
    files: int
    """in it and in all folders below it"""
    bytes: int
    folders: list[LeftFolder]
    items: list[LeftFile]
    """files directly in it, by path"""
    arriving: int = 0
    """files of the job that are on their way"""
    limits: Any = None
    next_cursor: str | None = None
    not_kept: list[str] = field(default_factory=list)
    """what is told of limits that the job's files have passed"""


class Goodput(Struct, frozen=True, kw_only=True):
    text: str
    wall_seconds: float
    """from since to until, without the time it was paused"""
    goodput: float | None = None
    """useful step time / wall time; null until a step is done, and for scripts"""
    incidents: list[Any] = field(default_factory=list)
    """oldest first; they add up to the part `incident`"""
    job_id: str = ""
    parts: list[TimePart] = field(default_factory=list)
    """every cause that took time, in a fixed order; they add up to wall_seconds"""
    paused_seconds: float = 0.0
    """its user's: not part of the wall time"""
    queued_seconds: float = 0.0
    """before it first got slots: not part of the wall time"""
    redone_steps: int | None = None
    """steps that two generations finished count twice; null for scripts"""
    resolution_steps: int = 0
    """1: from every step's own record; else from roll-ups of so many steps"""
    since: datetime | None = None
    """when the job first got its slots; null until then"""
    until: datetime | None = None
    """now, or when the job ended"""
    useful_steps: int | None = None
    """null for scripts: they do not tell what a step is"""


class Incident(Struct, frozen=True, kw_only=True):
    """
    A fault, and its recovery. Its phases add up to the outage, or while it is open to its age; time without a report is part of the
    phase after it.
    """

    id: str
    outcome: str
    """overtaken: by the next fault; stopped: the job ended or was paused before its next step"""
    what: str
    """the causing rank, where it was and what ended it, in words"""
    why: str
    """the decision's reason, as it was known then and corrected when the culprit was heard of later"""
    done: str
    """what was done about it, and what it cost, in words"""
    step: int
    """the newest step that any rank was known to have committed: where to mark it on a curve"""
    fault_at: datetime
    age_seconds: float
    """from the fault until it was over, or until now"""
    action: str = ""
    """fell_back: to a checkpoint, in the processes that had survived; restarted: in new ones"""
    cause: str | None = None
    culprit: Failure | None = None
    """the causing rank; the ranks it dragged down are its victims"""
    first_step_at: datetime | None = None
    generation: int = 0
    job_id: str = ""
    new_size: int | None = None
    next_generation: int | None = None
    old_size: int = 0
    outage_seconds: float | None = None
    """from the fault until it was over; null while it is open"""
    over_at: datetime | None = None
    """null while it is open"""
    phases: list[Phase] = field(default_factory=list)
    resumed_step: int | None = None
    """the committed step from which the next generation went on"""
    seconds_lost: float | None = None
    """of work: from the step that is kept until the fault"""
    steps_lost: int | None = None
    survivors: list[int] = field(default_factory=list)
    """ranks with processes that went on in the next generation, by their old numbers"""


class JobGradients(Struct, frozen=True, kw_only=True):
    steps: list[GradientStep]
    """in rising order"""
    job_id: str = ""
    request: RequestedGradients | None = None
    """the newest that was made while the job runs; null: none was"""


class JobMedia(Struct, frozen=True, kw_only=True):
    keys: list[MediaKey]
    """by name; a key of two kinds is there twice"""
    job_id: str = ""


class JobProgress(Struct, frozen=True, kw_only=True):
    """The last report of rank 0."""

    bad_loss: BadLoss | None = None
    """the newest one, for the next 500 steps; null: none"""
    best_eval_loss: float | str | None = None
    """the lowest of any evaluation; null: there was none"""
    best_loss: float | str | None = None
    """the lowest that was reported of any step; null: not known"""
    eta_seconds: float | None = None
    eval_loss: float | str | None = None
    """of the newest evaluation; null: there was none"""
    last_checkpoint_step: int | None = None
    loss: float | str | None = None
    mfu: float | str | None = None
    """null where the model's arithmetic or the device's peak is not known: see .../performance"""
    not_finite_step: int | None = None
    """the first step of this generation whose loss was NaN or infinite; null: none"""
    samples_per_second: float | str | None = None
    saved_file: SavedFile | None = None
    """of a script; null: none was found below its working directory"""
    step: int = 0
    tokens_per_second: float | str | None = None
    total_steps: int | None = None
    updated_at: datetime | None = None


class MediaAtStep(Struct, frozen=True, kw_only=True):
    key: str
    kind: str
    step: int
    objects: list[MediaObject]
    generation: int = 0
    job_id: str = ""
    ranks: list[int] = field(default_factory=list)
    """all that logged it, asked for or not"""


class NetworkPlan(Struct, frozen=True, kw_only=True):
    """The messages that cross the network between nodes, and those that do not."""

    text: str
    """the same in one sentence"""
    axes: list[PlannedAxis] = field(default_factory=list)
    """axes with more than one rank, those whose ranks are closest first"""
    ranks_by_node: list[int] = field(default_factory=list)
    """in rank order: where the job would run now or, if it would wait, with no other job here"""


class Node(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    state: str
    device: str
    slots: list[SlotUse]
    address: str
    backlog_records: int = 0
    clock_skew_seconds: float | None = None
    container_engines: list[str] = field(default_factory=list)
    """that work, the preferred one first; jobs with `environment.image` need one"""
    cpu_count: int = 0
    drain_blocked_by: list[str] = field(default_factory=list)
    """ids of the jobs that a draining node waits for"""
    gpu_note: str | None = None
    """"no GPU" or the driver's error, where there are no readings"""
    gpus: list[GpuReading] = field(default_factory=list)
    handle: str | None = None
    """its provider's own name for it"""
    has_uv: bool | None = None
    """to install `environment.requirements`; null: an agent that does not say"""
    heartbeat_age_seconds: float | None = None
    host: Any = None
    hostname: str = ""
    joined_at: datetime | None = None
    labels: dict[str, str] = field(default_factory=dict)
    memory_bytes: int = 0
    platform: str = ""
    pool: str | None = None
    """the pool that it was launched for"""
    provider: str = "manual"
    """what started it: `manual`, a person with a command; else the type of its provider"""
    revision: int = 0
    taints: dict[str, str] = field(default_factory=dict)
    """by key; they keep jobs off that do not tolerate them (`resources.tolerations`)"""
    versions: dict[str, str] = field(default_factory=dict)


class NodePool(Struct, frozen=True, kw_only=True):
    """A pool, and how many nodes it has."""

    name: str
    provider: Any
    """as it is stored, where the pool is unreadable"""
    autoscale: AutoscaleSettings | None = None
    """set: the coordinator decides how many nodes it has"""
    coming: int = 0
    """that were asked for, and have not joined"""
    labels: dict[str, str] = field(default_factory=dict)
    max_nodes: int = 0
    min_nodes: int = 0
    node_hours: float | None = None
    """that its nodes have run for in this calendar month (UTC), with autoscale or without"""
    nodes: int = 0
    """that have joined, and are wanted"""
    server: str = ""
    """the coordinator's URL, as its nodes reach it"""
    slots: int | None = None
    spot: bool = False
    unreadable: str | None = None
    """why this version cannot read what is stored of the pool: it is left as it is until it is applied again; null: it can"""
    updated_at: datetime | None = None
    withheld: list[WithheldJob] = field(default_factory=list)
    """pending jobs that no node of it is launched for, and why; the first twenty"""
    withheld_count: int = 0
    """how many such jobs there are"""


class NotificationChannel(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    kind: str
    target: str
    """host of the url, or how many recipients: the url itself is never shown"""
    created_at: datetime | None = None
    created_by: str = ""
    enabled: bool = False
    for_members: bool = False
    last: NotificationDelivery | None = None
    """the newest message that was sent or tried"""
    recipients: list[str] = field(default_factory=list)
    """of an e-mail channel, for admins; empty for others"""


class ParameterGradients(Struct, frozen=True, kw_only=True):
    name: str
    sharded: bool
    """each rank has a shard, and its numbers are of that"""
    histogram: list[int]
    """elements in each bin, summed over `ranks`; zeros and what is not finite are in none"""
    ranks: list[RankGradient]
    unused: list[int]
    """ranks whose backward has not reached it"""


class Performance(Struct, frozen=True, kw_only=True):
    steps: int
    """newest steps of rank 0 that the means are of; 0: none is done, or it does not tell"""
    mfu: Utilization
    bubble: Bubble | None = None
    """null: the job is no pipeline"""
    exposed_communication: float | None = None
    """share of a step in which `timed_rank` waited for others and computed nothing; null: not known, as on GPUs with fsdp or tensor parallelism, where torch starts what is waited for"""
    generation: int = 0
    job_id: str = ""
    overlapped_communication: float | None = None
    """share of a step in which something was under way while `timed_rank` computed; null: not measured, as on GPUs and in pipelines"""
    parts: list[StepTime] = field(default_factory=list)
    """they add up to step_seconds; without communication where that is not known, and lies in backward: see exposed_communication"""
    peak_memory: list[PeakMemory] = field(default_factory=list)
    ranks: int = 0
    """of the newest generation"""
    samples_per_second: float | None = None
    step_seconds: float | None = None
    timed_rank: int = 0
    """that `parts` and the shares of communication are measured on: 0, or the first worker beside parameter servers"""
    tokens_per_second: float | None = None
    traffic: list[AxisTraffic] = field(default_factory=list)
    """by axis of the mesh, the outermost first; empty where there is one rank"""
    uncounted: list[str] = field(default_factory=list)
    """axes of the mesh that ranks send along uncounted: on GPUs torch itself sends what tensor parallelism does"""


class PlanChoice(Struct, frozen=True, kw_only=True):
    asked: list[str]
    """what the spec said of it, as in `parallelism.strategy: auto`"""
    why: str
    """two sentences"""
    assumed: str
    """the assumptions of the estimates that were not measured"""
    budget_bytes: int
    """what a plan may need: of a slot's memory all but a tenth"""
    chosen: PlanOption
    not_told: int = 0
    """further rejected plans, which are left out"""
    rejected: list[PlanOption] = field(default_factory=list)
    """those that fit first, the fastest first, then those that do not, the smallest first"""


class SampleAudit(Struct, frozen=True, kw_only=True):
    text: str
    discarded_steps: int = 0
    """steps that a later generation did again from a checkpoint: they do not count"""
    duplicates: int = 0
    epochs: list[Any] = field(default_factory=list)
    """the newest 1,000"""
    exactly_once: bool | None = None
    """no place used twice, none left out up to the newest step; null where it is not recorded"""
    findings: list[str] = field(default_factory=list)
    """each fault that was found, in words"""
    first_step: int | None = None
    job_id: str = ""
    last_step: int | None = None
    missing: int = 0
    next_cursor: str | None = None
    """pass as cursor= for further ranges; null on the last page"""
    ranges: list[SampleRange] = field(default_factory=list)
    recorded: bool = False
    """false: this job does not tell which samples its steps use"""
    samples: int = 0
    """uses, duplicates included"""
    steps: int = 0


class StackProcess(Struct, frozen=True, kw_only=True):
    pid: int
    command: str = ""
    error: str = ""
    """why there are no threads, with the way out"""
    threads: list[StackThread] = field(default_factory=list)
    """the main thread first"""


class StepGradients(Struct, frozen=True, kw_only=True):
    job_id: str
    step: int
    ranks: list[GradientRecordState]
    """those that have recorded the step, of the ranks that were asked for"""
    parameters: list[ParameterGradients]
    edges: list[float] = field(default_factory=list)
    """of the bins; the first reaches from -infinity, the last to infinity; a bin has its lower edge"""
    generation: int = 0


class Storage(Struct, frozen=True, kw_only=True):
    stored_bytes: int
    """points, curves, log lines and readings: what the limit counts"""
    limit_bytes: int | None
    """null: no limit"""
    database_bytes: int
    """what the metrics database takes on disk"""
    free_in_database_bytes: int
    """of that, free for new rows; 0 on PostgreSQL, which does not tell"""
    disk: DiskState | None
    """under the coordinator's databases; null with PostgreSQL, whose disk it does not see"""
    kinds: list[StoredKind]
    largest_jobs: list[StoredJob]
    policy: list[str]
    """what is kept, in sentences, with the names of the settings"""
    hint: str | None
    """what to do about it where not"""
    shrinks: bool = False
    """free space goes back to the disk; PostgreSQL sees to that itself"""


class Trial(Struct, frozen=True, kw_only=True):
    index: int
    state: str
    baseline: bool = False
    job: TrialJob | None = None
    metric: float | None = None
    """the experiment's metric at its last step; null: none yet, or not finite"""
    metric_step: int = 0
    """step of its job when metric and speed were read: that of the job once nothing is missing in them"""
    refusal: str | None = None
    """why the planner does not take this configuration"""
    repeat: int = 0
    reused: bool = False
    """its job ran for the same configuration before the experiment was posted again"""
    values: Any = None
    """by path, with world_size where there are world sizes"""


class Analysis(Struct, frozen=True, kw_only=True):
    trials: int
    configurations: list[Configuration]
    axes: list[str] = field(default_factory=list)
    """paths that vary, with `world_size`; the table's columns"""
    best: int | None = None
    """the configuration that is recommended"""
    best_trial: int | None = None
    """the trial with the best metric at its last step, as the experiment has it"""
    completed: int = 0
    convergence: list[Convergence] = field(default_factory=list)
    cost_checks: list[CostCheck] = field(default_factory=list)
    differences: list[FigureDifference] = field(default_factory=list)
    """at most 300: those that are differences first, then by size"""
    effects: list[Effect] = field(default_factory=list)
    ended: int = 0
    """trials that have run and change no more: completed, failed, pruned or cancelled"""
    energy_joules: float | None = None
    """of the cards of all trials that have held slots; null: that of one is unknown"""
    failed: int = 0
    fits: list[Fit] = field(default_factory=list)
    outliers: list[Outlier] = field(default_factory=list)
    predictions: list[Prediction] = field(default_factory=list)
    refused: int = 0
    sentences: list[Sentence] = field(default_factory=list)
    series: list[Series] = field(default_factory=list)
    slot_hours: float | None = None
    """of all trials, whatever became of them; null: none has held slots"""


class ExperimentAnalysis(Struct, frozen=True, kw_only=True):
    analysis: Analysis
    complete: bool = False
    """no trial can still change it"""
    experiment_id: str = ""
    made_at: datetime | None = None
    seconds: float = 0.0
    """that the analysis took"""


class Job(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    state: str
    desired: str
    progress: JobProgress
    world_size: int
    """how many ranks the job should have: what its spec says, or the last resize"""
    generation: int
    restarts: int
    created_at: datetime
    strategy: str
    actual_world_size: int | None = None
    """ranks of the newest generation; null once that has ended"""
    archived_at: datetime | None = None
    """when it was archived: lists leave it out unless asked; null: it is not"""
    as_of_seq: int = 0
    """the events stream continues from here"""
    can_pause: bool = True
    """by what it runs: a script only with `script.saves_on_sigterm`, or while it is queued"""
    can_resize: bool = True
    """by what it runs, whatever its state: a script only with a least or most size: `min_nodes`, `max_nodes`, `min_slots` or `max_slots`"""
    choice: PlanChoice | None = None
    """where strategy auto was asked for: what stands in its place in the spec, and why"""
    communication: CommunicationChoice | None = None
    """where communication: auto was asked for: how gradients are summed, and why; null: not decided yet"""
    created_by: str = ""
    created_by_id: str | None = None
    """the user whose job it is; null: nobody's but the admins'"""
    data_removal: DataRemoval | None = None
    """somebody had its points, curves, log lines, traces, gradients, media and files deleted"""
    end_reason: str | None = None
    ended_at: datetime | None = None
    experiment: Any = None
    """the experiment of which it is a trial; null: of none"""
    failure: Failure | None = None
    generations: list[Generation] = field(default_factory=list)
    """the newest 100, oldest first"""
    hang: HangNotice | None = None
    """it seems to hang; null: it does not, or that is not known"""
    labels: dict[str, str] = field(default_factory=dict)
    last_world_size: int | None = None
    """how many ranks a job that has ended had last; null: it has not ended, or never ran"""
    model: str = ""
    """gpt, hf, mlp, resnet, entrypoint or script"""
    notes: str = ""
    pending: Reason | None = None
    """why a queued or recovering job is not running, or a running one has fewer ranks or spares than it should"""
    printed_curves: bool = False
    """of a script: its curves are read from the lines that it prints"""
    priority: int = 0
    project: str = ""
    ran_seconds: float = 0.0
    """how long it has held slots, over all generations: what `spec.time_limit` counts"""
    ranks: list[Rank] = field(default_factory=list)
    """of the newest generation; parked ones, which have no place in it, count on from its size"""
    restored_from: str | None = None
    """the checkpoint that this job started from"""
    revision: int = 0
    """the ETag; send it as If-Match with whatever changes the job"""
    silent_nodes: list[SilentNode] = field(default_factory=list)
    """nodes of the job that are not heard of, and not given up as lost yet"""
    spec: Any = None
    """null where it is unreadable"""
    started_at: datetime | None = None
    stored_spec: Any = None
    """an unreadable spec, as it is stored"""
    time_left_seconds: float | None = None
    """of `spec.time_limit`; null: no limit, or it has ended"""
    time_limit_at: datetime | None = None
    """when it reaches `spec.time_limit`; null: no limit, or it holds no slots now"""
    time_limit_seconds: int | None = None
    """`spec.time_limit`"""
    unreadable: str | None = None
    """why this version cannot read the job's stored spec: it is left as it is, and can be cancelled; null: it can"""
    warnings: list[str] = field(default_factory=list)
    """of the answer to a submission: what the coordinator sees of the job's folder, whether nodes share checkpoint.directory, and secrets among its variables"""


class Plan(Struct, frozen=True, kw_only=True):
    """The effect of a spec if it were submitted now."""

    plan_hash: str
    """submit with it to get a 409 if the answer would differ by then"""
    world_size: int
    strategy: str
    choice: PlanChoice | None = None
    """what strategy auto chose, and why"""
    global_batch_size: int | None = None
    gradient_accumulation_steps: int | None = None
    """micro-batches of the busiest rank"""
    memory_per_rank: MemoryEstimate | None = None
    micro_batch_size: int | None = None
    """null for scripts, and where the job is to find it"""
    micro_batches: int | None = None
    """in a global batch, shared out over the ranks; the last one may be smaller"""
    network: NetworkPlan | None = None
    """null: one rank, or more than the nodes here hold"""
    parameter_count: int | None = None
    pending: Reason | None = None
    """why it could not be placed now"""
    placement: list[RankPlacement] | None = None
    reproducible: bool = False
    """losses and parameters are the same to the last bit on any number of ranks"""
    spec: Any = None
    """the effective spec: every default filled in, and what strategy auto chose"""
    stages: list[PlannedStage] = field(default_factory=list)
    """of a pipeline, first to last; none where only a rank can tell"""
    warnings: list[str] = field(default_factory=list)


class RankStacks(Struct, frozen=True, kw_only=True):
    rank: int
    node_name: str
    state: str
    differs: bool
    """this rank is elsewhere than the others, which may wait for it"""
    summary: str
    """where it is, as `waits in all_reduce (step in train.py:9)`"""
    cores: float | None = None
    """CPU time of all its processes, by the seconds that passed; null: not known"""
    error: str = ""
    """why there is no stack, with the way out; empty: there is one"""
    gpu_percent: float | None = None
    """utilization of its card; null: there is none, or it is not known"""
    processes: list[StackProcess] = field(default_factory=list)
    """the rank itself first, then launchers and workers of data loaders"""
    same_as: int = 0
    """the first rank whose processes have the very same stacks: itself where no earlier one has"""
    taken_at: datetime | None = None
    """null: its agent has not answered"""


class JobStacks(Struct, frozen=True, kw_only=True):
    summary: str
    """what the ranks do, and which one differs"""
    ranks: list[RankStacks]
    differs: list[int] = field(default_factory=list)
    """the ranks that differ from the others; none where none does, or none can be named"""
    generation: int = 0
    job_id: str = ""
