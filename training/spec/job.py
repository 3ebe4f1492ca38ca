"""What a user submits: one frozen, versioned `JobSpec`, the same for YAML, REST, command line, Python and the form.

Pure pydantic, no torch: the coordinator and the command line import this module too. What cannot be made right is refused, never
ignored.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from paceline.training.spec.amounts import CountOrAuto, Seconds, TimeLimit
from paceline.training.spec.bad_loss import OnNan, OnSpike
from paceline.training.spec.conflicts import too_many_micro_batches, why_not_together
from paceline.training.spec.parts import MOST_EPOCHS, MOST_SAMPLES, Part, Path, PositiveInt, Real, Text, Whole, at_most, inconsistent
from paceline.training.spec.profile_window import ProfileWindow, require_traceable
from paceline.training.spec.resources import Resources
from paceline.training.spec.script import Argument, Script
from paceline.training.spec.spelling import Spelling
from paceline.training.spec.staging import why_not_in_stages
from paceline.training.spec.strategy import Parallelism, why_not_auto
from paceline.training.spec.workload import MODEL_DATA, AdamW, Data, Model, Optimizer, Schedule

SPEC_VERSION: Literal[1] = 1
#: Micro-batches of a reproducible job's global batch for each rank of a replica, unless micro_batch_size says otherwise: even on 1, 2, 4 and 8
#: replicas.
DEFAULT_MICRO_BATCHES = 8
#: Of a pipeline's global batch, for each of its ranks: it idles for a fifth of a step, or less, as one of 1F1B.
MICRO_BATCHES_PER_RANK = 4
#: Of `hang_seconds`: a garbage collection or a crowded machine takes less.
LEAST_HANG_SECONDS = 1
MOST_HANG_SECONDS = 7 * 24 * 3600

Name = Annotated[
    str,
    Spelling(
        r"^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$",
        "1 to 63 lower-case letters, digits, '.', '_' and '-'; first and last a letter or digit",
        "gpt-small",
    ),
]
VariableName = Annotated[str, Spelling(r"^[A-Za-z_][A-Za-z0-9_]*$", "letters, digits and '_', first no digit", "NCCL_DEBUG")]
LABEL_NAME = Spelling(
    r"^[a-z0-9][a-z0-9._/-]{0,62}$", "1 to 63 lower-case letters, digits, '.', '_', '/' and '-'; first a letter or digit", "team"
)
LabelName = Annotated[str, LABEL_NAME]
EntryPoint = Annotated[
    str, Spelling(r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", "a module and a function of it, as module:function", "my_task:make_task")
]


class TrainingLength(Part):
    """How long, and in which portions. A step's global batch is a fixed list of micro-batches, whatever the world."""

    steps: PositiveInt | None = None
    epochs: Annotated[Whole, Field(ge=1, le=MOST_EPOCHS)] | None = None
    global_batch_size: Whole = Field(32, ge=1, le=MOST_SAMPLES, description="samples per optimizer step over all ranks")
    micro_batch_size: CountOrAuto | None = Field(
        None,
        description="samples per forward; default: global batch / 8 for each rank of a replica (not reproducible: / world size; pipeline: / 4 for "
        "each rank), rounded up; "
        "auto: the most that fit a slot's memory, found by trying real steps before the first one",
    )
    gradient_clip_norm: Real | None = Field(1.0, gt=0)
    eval_every_steps: PositiveInt | None = 100
    eval_samples: PositiveInt | None = Field(512, description="held-out samples per evaluation; null: all")
    data_workers: Whole = Field(
        0, ge=0, le=64, description="threads of each rank that compute its next micro-batches while it trains; the numbers stay the same"
    )
    seed: Whole = Field(0, ge=0, lt=2**32)
    generate_tokens: Whole = Field(0, ge=0, le=100_000, description="length of the sample logged at the end (gpt only)")

    @model_validator(mode="after")
    def check_lengths(self) -> TrainingLength:
        if (self.steps is None) == (self.epochs is None):
            raise inconsistent("give exactly one of steps and epochs")
        if isinstance(self.micro_batch_size, int) and self.micro_batch_size > self.global_batch_size:
            raise inconsistent(
                "micro_batch_size={micro} is larger than global_batch_size={total}; use {total} or less",
                micro=self.micro_batch_size,
                total=self.global_batch_size,
            )
        return self


class CheckpointPolicy(Part):
    every_steps: PositiveInt | None = Field(100, description="null: only at the end and on pause")
    keep_last: Whole = Field(3, ge=1, le=1000)
    keep_best: Whole = Field(1, ge=0, le=100)
    metric: Text = Field("eval_loss", max_length=200, description="what best means")
    mode: Literal["min", "max"] = "min"
    directory: Path | None = Field(None, description="absolute path that every node of the job sees; default: the agents' own")
    asynchronous: bool = Field(
        True, description="training goes on while a checkpoint is written, from a copy in the host's memory; false: it waits"
    )

    @model_validator(mode="after")
    def check_directory(self) -> CheckpointPolicy:
        if self.directory is not None and not PurePosixPath(self.directory).is_absolute():
            raise inconsistent("checkpoint.directory={path} is not an absolute path", path=self.directory)
        return self


class FaultTolerance(Part):
    """After a fault. `close_up`: the other ranks go on in the same processes, and replacements join them; from the newest committed step
    where they hold all of the state between them, else (fsdp) from the newest verified checkpoint. `restart`, also where nobody is left to
    go on or the code itself is broken: all ranks are started again, from the newest verified checkpoint. What goes back to a checkpoint
    happens at most `max_restarts` times."""

    max_restarts: Whole = Field(3, ge=0, le=1000)
    recovery: Literal["restart", "close_up"] = "close_up"
    spares: Whole = Field(0, ge=0, le=64, description="ranks kept warm in slots of their own, to take the place of lost ones at once")
    hang_seconds: Seconds | None = Field(
        None,
        le=MOST_HANG_SECONDS,
        description="a rank that works on one step for longer, while others wait for it, counts as hung; default: ten times the measured "
        "step time and 30 s. A stopped process or a machine that does not answer is noticed sooner, by measured step times, in any case. "
        "A script hangs that has no output and no step on any rank for so long; default: it is never ended, and told of after 5 minutes",
    )
    on_nan: OnNan = "warn"
    on_spike: OnSpike = "warn"

    @property
    def rolls_back(self) -> bool:
        return "roll_back" in (self.on_nan, self.on_spike)

    @model_validator(mode="after")
    def check_hang_detection(self) -> FaultTolerance:
        if self.hang_seconds is not None and self.hang_seconds < LEAST_HANG_SECONDS:
            raise inconsistent(
                "hang_seconds={given} would take a moment's delay for a hang; use {least} or more, or leave it out",
                given=self.hang_seconds,
                least=LEAST_HANG_SECONDS,
            )
        return self


class Environment(Part):
    variables: Annotated[dict[VariableName, Argument], at_most(1000)] = Field(default_factory=dict, max_length=1000)
    working_directory: Path | None = Field(None, description="absolute folder on the nodes; first on sys.path of the ranks")

    @model_validator(mode="after")
    def check_environment(self) -> Environment:
        if self.working_directory is not None and not PurePosixPath(self.working_directory).is_absolute():
            raise inconsistent("environment.working_directory={path} is not an absolute path", path=self.working_directory)
        reserved = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} & set(self.variables)
        if reserved:
            raise inconsistent(
                "environment.variables sets {names}, which Paceline itself sets for each rank", names=", ".join(sorted(reserved))
            )
        return self


class JobSpec(Part):
    version: Literal[1] = SPEC_VERSION
    name: Name
    project: Name = "default"
    description: Text = Field("", max_length=2000)
    labels: Annotated[dict[LabelName, Annotated[Text, Field(max_length=253)]], at_most(64)] = Field(default_factory=dict, max_length=64)
    priority: Whole = Field(50, ge=0, le=100, description="higher is placed first")
    time_limit: TimeLimit | None = Field(
        None,
        description="how long the job may hold slots, over all its generations and without pauses and queues, in seconds or as 1h30m; then it "
        "saves and ends, failed with time_limit; default: no limit",
    )
    resources: Resources = Resources()
    model: Model | None = None
    data: Data | None = None
    entrypoint: EntryPoint | None = Field(None, description="module:function that returns a paceline.Task")
    script: Script | None = None
    initial_weights: Path | None = Field(
        None,
        description="safetensors that the model starts with in place of random numbers: a file, or a folder as `paceline export` and "
        "save_pretrained write it; absolute path on every node",
    )
    optimizer: Optimizer = AdamW()
    schedule: Schedule = Schedule()
    parallelism: Parallelism = Parallelism()
    precision: Literal["fp32", "bf16", "fp16"] = Field(
        "fp32",
        description="of matrix products and activations; parameters, gradients and optimizer state stay fp32. fp16 scales the loss, and skips "
        "the update of a step whose gradients overflow",
    )
    compile: bool = Field(
        False,
        description="torch.compile of the model's blocks: faster steps, equal to rounding, after a first one that takes a minute or so. Every "
        "node needs a C++ compiler, or Triton for its GPUs",
    )
    reproducible: bool | None = Field(
        None,
        description="losses and parameters are the same to the last bit on any number of ranks, of fsdp with a given shard, and of pipelines, "
        "on any number of replicas; default: true, false for script, fsdp, tensor, pipeline and context",
    )
    training: TrainingLength | None = None
    checkpoint: CheckpointPolicy = CheckpointPolicy()
    fault_tolerance: FaultTolerance = FaultTolerance()
    environment: Environment = Environment()
    profile: ProfileWindow | None = None

    @property
    def world_size(self) -> int:
        return self.resources.world_size

    @property
    def closes_up(self) -> bool:
        """Whether survivors of a fault go on without the lost ranks, and ranks may come and go while it runs."""
        return self.why_not_close_up is None

    @property
    def is_elastic_script(self) -> bool:
        """Whether it is a script that is started again with another world when nodes are lost or come back, as under torchrun."""
        return self.script is not None and self.resources.is_elastic

    @property
    def why_not_close_up(self) -> str | None:
        """Return the reason why survivors of this job cannot close up, with the way out. None if they can."""
        if self.script is not None:
            return "a script is started again as a whole; leave it out, or use an entrypoint or a model"
        if self.parallelism.strategy == "single":
            return "strategy single is one process; use ddp"
        return None if self.fault_tolerance.recovery == "close_up" else "set fault_tolerance.recovery to close_up"

    @property
    def min_ranks(self) -> int:
        """The fewest ranks that a job which closes up goes on with, or that an elastic script is started with. Unless its user says so, no rank is
        given more of the model to hold than it has at full size: it might not fit."""
        if self.resources.min_nodes is not None:
            return self.resources.min_nodes * self.resources.slots_per_node
        if self.script is not None:
            return self.world_size
        return self.parallelism.ranks_of_replica(self.world_size)

    @property
    def is_reproducible(self) -> bool:
        """By default that of plain replicas: it costs too little to be worth a question. Of parts and stages it costs their memory, and parts of
        gradients are added up in an order that depends on how many there are. A script adds them up by itself."""
        possible = self.script is None and not self.parallelism.shards and not self.parallelism.cuts
        return possible if self.reproducible is None else self.reproducible

    @property
    def micro_batch_size(self) -> int:
        """Samples per forward pass; only for specs with a `training` part. A reproducible job's does not depend on its resources. Where it is
        to be found by trying (`searches`), this is what a rank builds with until then."""
        assert self.training is not None
        given = self.training.micro_batch_size
        if isinstance(given, int):
            return given
        plan = self.parallelism
        if self.is_reproducible:
            parts = DEFAULT_MICRO_BATCHES * (plan.shard or 1) * plan.pipeline
        else:
            parts = self.data_ranks(self.resources.most_ranks) * (MICRO_BATCHES_PER_RANK * plan.pipeline if plan.pipeline > 1 else 1)
        return -(-self.training.global_batch_size // parts)

    @property
    def searches(self) -> bool:
        """Whether the micro-batch is still to be found."""
        return self.training is not None and self.training.micro_batch_size == "auto"

    @property
    def micro_batches(self) -> int:
        """Micro-batches in one global batch; the last one may be smaller."""
        assert self.training is not None
        return -(-self.training.global_batch_size // self.micro_batch_size)

    @model_validator(mode="after")
    def check_workload(self) -> JobSpec:
        given = [name for name in ("model", "entrypoint", "script") if getattr(self, name) is not None]
        if len(given) != 1:
            raise inconsistent(
                "give exactly one of model (with data), entrypoint and script; got {given}", given=", ".join(given) or "none"
            )
        if (self.model is None) != (self.data is None):
            raise inconsistent("model and data belong together: give both or neither")
        if self.model is not None and self.data is not None and self.data.kind not in MODEL_DATA[self.model.kind]:
            raise inconsistent(
                "model {model} does not train on data {data}; it takes {takes}",
                model=self.model.kind,
                data=self.data.kind,
                takes=", ".join(sorted(MODEL_DATA[self.model.kind])),
            )
        if self.script is not None and self.training is not None:
            raise inconsistent("leave training out: the script decides")
        if self.script is None and self.training is None:
            raise inconsistent("training is required: give steps or epochs")
        if self.script is not None and self.parallelism not in (Parallelism(), Parallelism(strategy="single")):
            raise inconsistent("a script arranges its ranks by itself: leave parallelism out, or use model or entrypoint")
        return self

    @model_validator(mode="after")
    def check_exclusive_options(self) -> JobSpec:
        if reason := why_not_together(self):
            raise inconsistent("{reason}", reason=reason)
        return self

    @model_validator(mode="after")
    def check_elasticity(self) -> JobSpec:
        way_out = self.why_not_close_up
        if way_out is not None and self.resources.is_elastic and self.script is None:
            least, most = self.resources.min_nodes, self.resources.max_nodes
            name, value = ("max_nodes", most) if most not in (None, self.resources.nodes) else ("min_nodes", least)
            raise inconsistent("resources.{name}={value} is for jobs that close up: {way_out}", name=name, value=value, way_out=way_out)
        if way_out is not None and self.fault_tolerance.spares:
            spares = self.fault_tolerance.spares
            raise inconsistent("fault_tolerance.spares={spares} is for jobs that close up: {way_out}", spares=spares, way_out=way_out)
        return self

    @model_validator(mode="after")
    def check_profile(self) -> JobSpec:
        require_traceable(self.profile, script=self.script is not None, most_ranks=self.resources.most_ranks)
        return self

    @model_validator(mode="after")
    def check_auto_inputs(self) -> JobSpec:
        if reason := why_not_auto(self.model, self.parallelism, searches=self.searches):
            raise inconsistent("{reason}", reason=reason)
        return self

    @model_validator(mode="after")
    def check_world_size(self) -> JobSpec:
        """Refuse a number of ranks that the plan cannot use. A plan that auto is to choose is checked once it is chosen."""
        if self.parallelism.is_auto:
            return self
        if self.parallelism.strategy == "single" and self.world_size != 1:
            raise inconsistent(
                "strategy single is one process, but resources ask for {world} slots; use ddp or one slot", world=self.world_size
            )
        if misfit := why_not_in_stages(self) or self.parallelism.misfit(self.world_size):
            raise inconsistent("{misfit}", misfit=misfit)
        for name in ("min_nodes", "max_nodes"):
            nodes = getattr(self.resources, name)
            if nodes is not None and (misfit := self.parallelism.misfit(nodes * self.resources.slots_per_node)):
                raise inconsistent("resources.{name}={nodes}: {misfit}", name=name, nodes=nodes, misfit=misfit)
        if reason := too_many_micro_batches(self):
            raise inconsistent("{reason}", reason=reason)
        short = self.too_few_micro_batches(self.resources.most_ranks)
        if short is not None:
            elastic = " (resources.max_nodes)" if self.resources.most_ranks > self.world_size else ""
            raise inconsistent("{short}{elastic}; {way_out}", short=short, elastic=elastic, way_out=self._enough_micro_batches())
        return self

    def data_ranks(self, ranks: int) -> int:
        """How many of them get micro-batches of their own. Raises WorldSizeMismatchError."""
        return self.parallelism.degrees(ranks).data

    def too_few_micro_batches(self, ranks: int) -> str | None:
        """Return the reason why this many ranks, which fit the axes, are too many: each data rank needs a micro-batch of its own. None if
        they are not. A script shares its work out by itself."""
        if self.training is None or self.micro_batches >= self.data_ranks(ranks):
            return None
        total = f"global_batch_size={self.training.global_batch_size} in micro-batches of {self.micro_batch_size}"
        kind = "ranks" if self.data_ranks(ranks) == ranks else "data ranks"
        return f"{total} makes {self.micro_batches}, fewer than {self.data_ranks(ranks)} {kind}"

    def _enough_micro_batches(self) -> str:
        assert self.training is not None
        total, most = self.training.global_batch_size, self.data_ranks(self.resources.most_ranks)
        return f"use micro_batch_size={total // most}" if total >= most else f"use global_batch_size={most} or more"


def json_schema() -> dict[str, Any]:
    """The published JSON Schema of a job spec."""
    return JobSpec.model_json_schema()
