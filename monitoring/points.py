"""Metric names, their units, and the records that carry them: the one list, and the wire contract of metrics and logs.

A record is what one rank measured at one step. `seq` counts up from 1 within (job, generation, rank, stream); the
coordinator acknowledges the highest one it holds, and drops whatever it has seen before.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal

import msgspec

from paceline.monitoring.readings import NodeReadings


class MetricUnit(StrEnum):
    NONE = ""
    NATS = "nats"
    RATIO = "ratio"
    SECONDS = "s"
    PER_SECOND = "1/s"
    BYTES = "B"
    PERCENT = "%"
    CELSIUS = "°C"
    WATTS = "W"
    MEGAHERTZ = "MHz"


#: Reported by rank 0 for the whole job, once per step.
JOB_METRICS: dict[str, MetricUnit] = {
    "loss": MetricUnit.NATS,
    "learning_rate": MetricUnit.NONE,
    "gradient_norm": MetricUnit.NONE,
    "loss_scale": MetricUnit.NONE,  # of fp16: by which the next step's loss is multiplied
    "skipped_updates": MetricUnit.NONE,  # since step 0, for gradients that overflowed in fp16, or for bad losses
    "samples_per_second": MetricUnit.PER_SECOND,
    "tokens_per_second": MetricUnit.PER_SECOND,
    "mfu": MetricUnit.RATIO,
    "flops_per_sample": MetricUnit.NONE,  # forward and backward, where the spec alone does not tell: counted on the rank, or a task's own figure
    "pipeline_bubble": MetricUnit.RATIO,  # of a step: a pipeline's ranks computed nothing, in the mean
    "eval_loss": MetricUnit.NATS,
    "eval_accuracy": MetricUnit.RATIO,
}

#: Reported by rank 0, once per step, for an audit of the data: the step used `samples` places of the endless line of samples
#: (`training/data/sampler.py`) from place `first_sample` on, counted from 0; an epoch has `epoch_samples` of them. Places, not
#: measurements, and no chart draws them.
SAMPLE_METRICS: dict[str, MetricUnit] = {
    "first_sample": MetricUnit.NONE,
    "samples": MetricUnit.NONE,
    "epoch_samples": MetricUnit.NONE,
}

#: Bytes that a rank sent in a step, by the axis of the mesh along which they went; `world`: between all ranks, whatever their axes.
SENT_METRICS: dict[str, str] = {
    "pipeline": "pipeline_sent_bytes",
    "replicate": "replicate_sent_bytes",
    "shard": "shard_sent_bytes",
    "context": "context_sent_bytes",
    "tensor": "tensor_sent_bytes",
    "world": "world_sent_bytes",
}

#: Reported by every rank for itself, once per step. The parts add up to step_seconds; `other` is the rest. Communication is absent where it is not known.
RANK_METRICS: dict[str, MetricUnit] = {
    "step_seconds": MetricUnit.SECONDS,
    "data_seconds": MetricUnit.SECONDS,
    "forward_seconds": MetricUnit.SECONDS,
    "backward_seconds": MetricUnit.SECONDS,
    "communication_seconds": MetricUnit.SECONDS,
    "optimizer_seconds": MetricUnit.SECONDS,
    "other_seconds": MetricUnit.SECONDS,
    "overlapped_communication_seconds": MetricUnit.SECONDS,  # under way while the rank computed: no part
    "memory_bytes": MetricUnit.BYTES,
    "peak_memory_bytes": MetricUnit.BYTES,
    "dropped_records": MetricUnit.NONE,
    **dict.fromkeys(SENT_METRICS.values(), MetricUnit.BYTES),
}

STEP_PARTS = ("data_seconds", "forward_seconds", "backward_seconds", "communication_seconds", "optimizer_seconds", "other_seconds")


#: Names that only a trainer may record, in any job: the audit of the data reads it.
RESERVED_NAMES = frozenset(SAMPLE_METRICS)
#: What the trainer of a job with a spec records; there, `paceline.log` refuses these names.
TRAINER_NAMES = frozenset({**JOB_METRICS, **SAMPLE_METRICS, **RANK_METRICS})
#: What `paceline.Trainer` records of an own loop, which evaluates and counts samples by itself.
OWN_LOOP_NAMES = TRAINER_NAMES - {"flops_per_sample", "pipeline_bubble", "eval_loss", "eval_accuracy"}

#: A step fits into the integers that JSON, JavaScript and both databases hold exactly.
MAX_STEP = (1 << 53) - 1
MAX_NAME_CHARACTERS = 200
#: Distinct names of metrics that one rank's code may record by itself; what is over is dropped, counted and told once.
MAX_NAMES = 1_000


def communication(sent: Mapping[str, float], overlapped: float | None) -> dict[str, float]:
    """Metrics of one rank's step: bytes by axis; seconds beside computing, None where they are unknown."""
    values = {SENT_METRICS[axis]: size for axis, size in sent.items()}
    return values if overlapped is None else values | {"overlapped_communication_seconds": overlapped}


def unit_of(name: str) -> MetricUnit:
    """The unit of a metric, where one of Paceline's models is trained; a user's own metric has none."""
    return JOB_METRICS.get(name) or RANK_METRICS.get(name) or SAMPLE_METRICS.get(name) or MetricUnit.NONE


class MetricRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything one rank measured at one step. NaN and Inf are legal values here; on JSON they travel as strings.

    `set_aside`: why the agent could not send what the rank had written under this number. Such a record only takes its number.
    """

    seq: int
    step: int
    time: float  # seconds since the epoch, on the rank's clock
    values: dict[str, float | Literal["NaN", "Infinity", "-Infinity"]]
    set_aside: str = ""


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    time: float
    level: Literal["debug", "info", "warning", "error"]
    text: str


EventKind = Literal[
    "checkpoint_committed",
    "checkpoint_damaged",
    "checkpoint_restored",
    "checkpoint_failed",
    "evaluated",
    "sample",
    "carried_on",
    "micro_batch_found",
    "data_dropped",
    "curves_found",
    "file_saved",
    "bad_loss",
    "run_configured",
    "communication_chosen",
]


class RankEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened on a rank and must reach the coordinator exactly once.

    kind                  data
    checkpoint_committed  directory, step, bytes, manifest_sha256, metrics {name: value}, parameters_sha256;
                          stall_seconds, write_seconds, slowdown or null, where the rank that saved it tells of it
    checkpoint_damaged    directory, reason         (verification failed; an older one is tried)
    checkpoint_restored   directory, step
    checkpoint_failed     step, reason              (training goes on)
    evaluated             step, metrics {name: value}
    sample                step, text
    micro_batch_found     size, peak_bytes, limit_bytes, tried {size: bytes}
    carried_on            step, transfers, fell_back, entered_at, joined_at, agreed_at, first_step_at or null
                          (living processes have formed a new generation; seconds since the epoch)
    data_dropped          the fields of `DataDropped`
    curves_found          path, how, late, printed  (a file of a script's is read into curves; how it is known to be this rank's; whether
                          its steps come some time after they were done; true: it is the rank's log)
    file_saved            path, bytes, step or null, time   (the newest file in a script's folders that looks like a checkpoint, with the step in its name; or
                          what `paceline.Trainer` has saved)
    bad_loss              step, what (not_finite, spike), act (the job's policy), again, loss, gradient_norm, limit or null, micro_batches,
                          sample_ids (the first of them), samples (how many there are)
    run_configured        the fields of `RunConfig`
    communication_chosen  step, text, links (as text), why, name, waited_seconds, options (name, predicted_seconds or null, measured_seconds or null,
                          taken), within and between (latency_seconds, bytes_per_second) or null
    """

    seq: int
    time: float
    kind: EventKind
    data: dict[str, Any]


class DataDropped(msgspec.Struct, frozen=True, kw_only=True):
    """Report of values from a rank's code that are not stored, sent once with an example."""

    what: str  # "metric names", "events", ...
    count: int  # when it was told; there may be more since
    reason: str
    example: str


class RunConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration of a script's run: from `paceline.init(config=...)`, or handed on by a framework."""

    name: str
    project: str
    config: dict[str, str | float | int | bool | None]  # nested names are joined by a slash


class RankBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The news of one rank since the last acknowledgement; each list is in `seq` order without holes.

    `metrics_gone` and `events_gone`: the list begins right behind this number, and the agent has nothing up to it any more. It had all of that
    acknowledged once; a coordinator that was restored from an older copy passes over what it lacks. 0: nothing is gone, or it does not matter here."""

    job_id: str
    generation: int
    rank: int
    metrics: list[MetricRecord] = []
    logs: list[LogLine] = []
    events: list[RankEvent] = []
    metrics_gone: int = 0
    events_gone: int = 0


class HighWater(msgspec.Struct, frozen=True, kw_only=True):
    """The highest seq of each stream that the coordinator holds durably; the agent may forget everything up to it. Of a stream of
    which the upload had nothing it may be 0."""

    job_id: str
    generation: int
    rank: int
    metrics: int = 0
    logs: int = 0
    events: int = 0


class Upload(msgspec.Struct, frozen=True, kw_only=True):
    """POST /api/v1/agents/upload, at most 5,000 records and 4 MiB."""

    batches: list[RankBatch]
    readings: NodeReadings | None = None  # of the node itself and its cards


class UploadReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    acknowledged: list[HighWater]
    #: The highest `seq` of the readings' spool that the coordinator holds. None: the upload had none, or it is of a version without them.
    readings: int | None = None
    #: Whether records that are gone are passed over. Until a coordinator says so, an agent keeps all that it may be asked for again.
    passes_gone: bool = False
