"""What a user submits: one frozen, versioned `JobSpec`, the same for YAML, REST, command line, Python and the form.

Pure pydantic, no torch: the coordinator and the command line import this module too. What cannot be made right is refused, never
ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from paceline.training.models.catalog import MODEL_DATA, Model
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
from paceline.training.schema.spelling import Spelling
from paceline.training.schema.training import TrainingLength
from paceline.training.spec import derived
from paceline.training.spec.conflicts import (
    enough_micro_batches,
    too_few_micro_batches,
    too_many_micro_batches,
    why_not_auto,
    why_not_together,
)
from paceline.training.spec.staging import why_not_in_stages
from paceline.training.spec.workload import BuiltinWorkload, Workload, workload_of

SPEC_VERSION: Literal[1] = 1

Name = Annotated[
    str,
    Spelling(
        r"^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$",
        "1 to 63 lower-case letters, digits, '.', '_' and '-'; first and last a letter or digit",
        "gpt-small",
    ),
]
LABEL_NAME = Spelling(
    r"^[a-z0-9][a-z0-9._/-]{0,62}$", "1 to 63 lower-case letters, digits, '.', '_', '/' and '-'; first a letter or digit", "team"
)
LabelName = Annotated[str, LABEL_NAME]
EntryPoint = Annotated[
    str, Spelling(r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", "a module and a function of it, as module:function", "my_task:make_task")
]


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
    communication: Communication = Communication()
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
        "on any number of replicas; default: true, false for script, fsdp, tensor, pipeline, context and where communication is not the default",
    )
    training: TrainingLength | None = None
    checkpoint: CheckpointPolicy = CheckpointPolicy()
    fault_tolerance: FaultTolerance = FaultTolerance()
    environment: Environment = Environment()
    profile: ProfileWindow | None = None
    gradients: Gradients | None = Field(
        None,
        exclude_if=absent,
        description="steps at which each rank records its own gradients, before ranks exchange them: norm, zeros, NaN, infinities, a histogram",
    )

    @property
    def world_size(self) -> int:
        return self.resources.world_size

    @property
    def workload(self) -> Workload:
        """Return what the job runs, with those of `model`, `data`, `entrypoint`, `script` and `training` that belong to it."""
        return workload_of(self.model, self.data, self.entrypoint, self.script, self.training)

    @model_validator(mode="after")
    def check_workload(self) -> JobSpec:
        match self.workload:
            case BuiltinWorkload(model, data) if data.kind not in MODEL_DATA[model.kind]:
                raise inconsistent(
                    "model {model} does not train on data {data}; it takes {takes}",
                    model=model.kind,
                    data=data.kind,
                    takes=", ".join(sorted(MODEL_DATA[model.kind])),
                )
        return self

    @model_validator(mode="after")
    def check_exclusive_options(self) -> JobSpec:
        if reason := why_not_together(self):
            raise inconsistent("{reason}", reason=reason)
        return self

    @model_validator(mode="after")
    def check_elasticity(self) -> JobSpec:
        way_out = derived.why_not_close_up(self)
        if way_out is not None and self.resources.is_elastic and not derived.is_elastic_script(self):
            least, most, unit = self.resources.min_blocks, self.resources.max_blocks, self.resources.unit
            name, value = (f"max_{unit}", most) if most not in (None, self.resources.blocks) else (f"min_{unit}", least)
            raise inconsistent("resources.{name}={value} is for jobs that close up: {way_out}", name=name, value=value, way_out=way_out)
        if way_out is not None and self.fault_tolerance.spares:
            spares = self.fault_tolerance.spares
            raise inconsistent("fault_tolerance.spares={spares} is for jobs that close up: {way_out}", spares=spares, way_out=way_out)
        return self

    @model_validator(mode="after")
    def check_auto_inputs(self) -> JobSpec:
        if reason := why_not_auto(self):
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
        unit, size = self.resources.unit, self.resources.slots_per_block
        for name, blocks in ((f"min_{unit}", self.resources.min_blocks), (f"max_{unit}", self.resources.max_blocks)):
            if blocks is not None and (misfit := self.parallelism.misfit(blocks * size)):
                raise inconsistent("resources.{name}={blocks}: {misfit}", name=name, blocks=blocks, misfit=misfit)
        if reason := too_many_micro_batches(self):
            raise inconsistent("{reason}", reason=reason)
        if reason := too_few_micro_batches(self, self.resources.most_ranks):
            elastic = f" (resources.max_{unit})" if self.resources.most_ranks > self.world_size else ""
            raise inconsistent("{reason}{elastic}; {way_out}", reason=reason, elastic=elastic, way_out=enough_micro_batches(self))
        return self


def json_schema() -> dict[str, Any]:
    """The published JSON Schema of a job spec."""
    return JobSpec.model_json_schema()
