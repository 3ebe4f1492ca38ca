"""What a user submits: one frozen, versioned `JobSpec`, the same for YAML, REST, command line, Python and the form.

Pure pydantic, no torch: the coordinator and the command line import this module too. What cannot be made right is refused, never
ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from paceline.training.models.catalog import Model
from paceline.training.schema.amounts import TimeLimit
from paceline.training.schema.checkpoint import CheckpointPolicy
from paceline.training.schema.communication import Communication
from paceline.training.schema.data import Data
from paceline.training.schema.environment import Environment
from paceline.training.schema.fault_tolerance import FaultTolerance
from paceline.training.schema.gradients import Gradients
from paceline.training.schema.optimizer import AdamW, Optimizer, Schedule
from paceline.training.schema.parallelism import Parallelism
from paceline.training.schema.parts import Part, Path, Text, Whole, absent, at_most, inconsistent
from paceline.training.schema.profile_window import ProfileWindow
from paceline.training.schema.resources import Resources
from paceline.training.schema.script import Script
from paceline.training.schema.spelling import SpellingRule
from paceline.training.schema.training import TrainingLength
from paceline.training.spec.consistency import ALSO, inconsistencies
from paceline.training.spec.workload import Workload, workload_of

SPEC_VERSION: Literal[1] = 1

Name = Annotated[
    str,
    SpellingRule(
        r"^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$",
        "1 to 63 lower-case letters, digits, '.', '_' and '-'; first and last a letter or digit",
        "gpt-small",
    ),
]
LABEL_NAME = SpellingRule(
    r"^[a-z0-9][a-z0-9._/-]{0,62}$", "1 to 63 lower-case letters, digits, '.', '_', '/' and '-'; first a letter or digit", "team"
)
LabelName = Annotated[str, LABEL_NAME]
EntryPoint = Annotated[
    str, SpellingRule(r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", "a module and a function of it, as module:function", "my_task:make_task")
]


class JobSpec(Part):
    """A job as it is submitted: what it runs, on how many ranks and with which strategy, and what it saves, logs and does after a fault."""

    version: Literal[1] = SPEC_VERSION
    name: Name
    project: Name = "default"
    description: Text = Field("", max_length=2000)
    labels: Annotated[dict[LabelName, Annotated[Text, Field(max_length=253)]], at_most(64)] = Field(default_factory=dict, max_length=64)
    priority: Whole = Field(50, ge=0, le=100, description="Jobs with higher priority are placed first.")
    time_limit: TimeLimit | None = Field(
        None,
        description="How long the job may hold slots, in seconds or as 1h30m. Restarts count, time paused or queued does not. At the limit the "
        "job saves and fails. Default: no limit.",
    )
    resources: Resources = Resources()
    model: Model | None = None
    data: Data | None = None
    entrypoint: EntryPoint | None = Field(None, description="Function that returns a paceline.Task, as module:function.")
    script: Script | None = None
    initial_weights: Path | None = Field(
        None,
        description="Start from these safetensors instead of random weights: a file, or a folder written by `paceline export` or "
        "save_pretrained. Absolute path on every node, or a place in an object store, from which each node fetches them once: s3://, gs://, az://.",
    )
    optimizer: Optimizer = AdamW()
    schedule: Schedule = Schedule()
    parallelism: Parallelism = Parallelism()
    communication: Communication = Communication()
    precision: Literal["fp32", "bf16", "fp16"] = Field(
        "fp32",
        description="Precision of matrix products and activations. Parameters, gradients and optimizer state stay fp32. With fp16 the loss is "
        "scaled, and steps whose gradients overflow are skipped.",
    )
    compile: bool = Field(
        False,
        description="Use torch.compile on the model's blocks. The first step takes about a minute, later ones are faster and numerically "
        "equivalent. Every node needs a C++ compiler, or Triton for GPUs.",
    )
    reproducible: bool | None = Field(
        None,
        description="Bit-identical losses and parameters on any number of ranks (with fsdp and pipelines: of replicas). Default: true, "
        "but false for scripts, fsdp, tensor, pipeline, context and any communication but the default.",
    )
    training: TrainingLength | None = None
    checkpoint: CheckpointPolicy = CheckpointPolicy()
    fault_tolerance: FaultTolerance = FaultTolerance()
    environment: Environment = Environment()
    profile: ProfileWindow | None = None
    gradients: Gradients | None = Field(
        None,
        exclude_if=absent,
        description="Steps at which each rank records its own gradients before they are exchanged: norm, zeros, NaN, infinities, histogram.",
    )

    @property
    def world_size(self) -> int:
        """How many ranks the job asks for."""
        return self.resources.world_size

    @property
    def workload(self) -> Workload:
        """Return what the job runs, with those of `model`, `data`, `entrypoint`, `script` and `training` that belong to it."""
        return workload_of(self.model, self.data, self.entrypoint, self.script, self.training)

    @model_validator(mode="after")
    def check_together(self) -> JobSpec:
        """Refuse what the sections cannot be together, all of it at once."""
        if reasons := inconsistencies(self):
            raise inconsistent("{reason}", reason=ALSO.join(reasons), reasons=reasons)
        return self


def json_schema() -> dict[str, Any]:
    """Return the published JSON Schema of a job spec."""
    return JobSpec.model_json_schema()
