"""What a user submits: one frozen, versioned `JobSpec`, the same for YAML, REST, command line, Python and the form.

Pure pydantic, no torch: the coordinator and the command line import this module too. Fields that a later version
implements are part of the schema and refused with the error type `not_available_yet`, never ignored.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from training.spelling import Spelling

SPEC_VERSION: Literal[1] = 1
#: Micro-batches of a reproducible job's global batch, unless micro_batch_size says otherwise: even on 1, 2, 4 and 8 ranks.
DEFAULT_MICRO_BATCHES = 8

Name = Annotated[
    str,
    Spelling(
        r"^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$",
        "1 to 63 lower-case letters, digits, '.', '_' and '-'; first and last a letter or digit",
        "gpt-small",
    ),
]
VariableName = Annotated[str, Spelling(r"^[A-Za-z_][A-Za-z0-9_]*$", "letters, digits and '_', first no digit", "NCCL_DEBUG")]
LabelName = Annotated[
    str,
    Spelling(r"^[a-z0-9][a-z0-9._/-]{0,62}$", "1 to 63 lower-case letters, digits, '.', '_', '/' and '-'; first a letter or digit", "team"),
]
EntryPoint = Annotated[
    str, Spelling(r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", "a module and a function of it, as module:function", "my_task:make_task")
]
PositiveInt = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]


def not_available_yet(field: str, value: object, way_out: str) -> PydanticCustomError:
    return PydanticCustomError(
        "not_available_yet",
        "{field}={value} is not available yet; {way_out}",
        {"field": field, "value": str(value), "way_out": way_out},
    )


def inconsistent(message: str, **context: object) -> PydanticCustomError:
    return PydanticCustomError("inconsistent_spec", message, context)


class Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class Resources(Part):
    """The gang: `nodes * slots_per_node` slots, all or nothing. A slot is a GPU, or one CPU slot on a node without GPUs."""

    nodes: int = Field(1, ge=1, le=4096)
    slots_per_node: int = Field(1, ge=1, le=64)
    min_nodes: int | None = Field(
        None, ge=1, description="how many nodes' worth of ranks a job that closes up goes on with; default: one rank"
    )
    max_nodes: int | None = Field(None, ge=1, description="largest elastic size; defaults to nodes")

    @property
    def world_size(self) -> int:
        return self.nodes * self.slots_per_node

    @model_validator(mode="after")
    def fixed_size(self) -> Resources:
        if self.max_nodes not in (None, self.nodes):
            raise not_available_yet("resources.max_nodes", self.max_nodes, f"leave it out or set it to nodes ({self.nodes})")
        if self.min_nodes is not None and self.min_nodes > self.nodes:
            raise inconsistent("min_nodes={least} is more than nodes={nodes}", least=self.min_nodes, nodes=self.nodes)
        return self


class GptModel(Part):
    """Pre-norm decoder over bytes or tokens: RoPE, SwiGLU, optionally tied embeddings."""

    kind: Literal["gpt"] = "gpt"
    layers: int = Field(4, ge=1, le=256)
    heads: int = Field(4, ge=1, le=256)
    dim: int = Field(256, ge=8, le=65536, description="width of the residual stream")
    context: int = Field(128, ge=8, le=1_048_576, description="tokens per sequence")
    vocab_size: int = Field(256, ge=2)
    dropout: Fraction = 0.0
    tied_embeddings: bool = True

    @model_validator(mode="after")
    def heads_divide_dim(self) -> GptModel:
        if self.dim % self.heads or (self.dim // self.heads) % 2:
            raise inconsistent(
                "dim={dim} must be an even multiple of heads={heads} (rotary embeddings need an even head size)",
                dim=self.dim,
                heads=self.heads,
            )
        return self


class MlpModel(Part):
    kind: Literal["mlp"] = "mlp"
    hidden: tuple[PositiveInt, ...] = (128, 128)
    dropout: Fraction = 0.0


class ResnetModel(Part):
    """CIFAR-style residual network (He et al. 2015, section 4.2): depth = 6n + 2."""

    kind: Literal["resnet"] = "resnet"
    depth: int = Field(20, ge=8, le=1202)
    width: int = Field(16, ge=1, le=1024, description="channels of the first stage")

    @field_validator("depth")
    @classmethod
    def six_n_plus_two(cls, depth: int) -> int:
        if (depth - 2) % 6:
            below = (depth - 2) // 6 * 6 + 2
            raise inconsistent("depth={depth} is not 6n + 2; use {below} or {above}", depth=depth, below=below, above=below + 6)
        return depth


class StdlibText(Part):
    """The source text of the installed Python standard library, as bytes: real text that every machine has."""

    kind: Literal["stdlib_text"] = "stdlib_text"
    holdout: float = Field(0.1, gt=0.0, lt=1.0, description="share of files held out for evaluation")


class Digits(Part):
    """scikit-learn's 1,797 real 8x8 digits."""

    kind: Literal["digits"] = "digits"
    holdout: float = Field(0.2, gt=0.0, lt=1.0)


class Cifar10(Part):
    """CIFAR-10 from a local folder (`path`, the python-version batches) or from a Hugging Face dataset (`dataset`)."""

    kind: Literal["cifar10"] = "cifar10"
    path: str | None = None
    dataset: str | None = None
    augment: bool = True

    @model_validator(mode="after")
    def one_source(self) -> Cifar10:
        if (self.path is None) == (self.dataset is None):
            raise inconsistent("give exactly one of path (a folder with data_batch_1..5 and test_batch) and dataset (a Hugging Face id)")
        return self


Model = Annotated[GptModel | MlpModel | ResnetModel, Field(discriminator="kind")]
Data = Annotated[StdlibText | Digits | Cifar10, Field(discriminator="kind")]

#: Which data each model family can train on.
MODEL_DATA = {"gpt": {"stdlib_text"}, "mlp": {"digits", "cifar10"}, "resnet": {"cifar10"}}


class AdamW(Part):
    kind: Literal["adamw"] = "adamw"
    lr: float = Field(3e-4, gt=0)
    betas: tuple[Fraction, Fraction] = (0.9, 0.95)
    eps: float = Field(1e-8, gt=0)
    weight_decay: float = Field(0.1, ge=0)


class Sgd(Part):
    kind: Literal["sgd"] = "sgd"
    lr: float = Field(0.1, gt=0)
    momentum: Fraction = 0.9
    nesterov: bool = False
    weight_decay: float = Field(0.0, ge=0)


Optimizer = Annotated[AdamW | Sgd, Field(discriminator="kind")]


class Schedule(Part):
    """Learning rate: linear warm-up to the optimizer's lr, then `kind` down to `min_ratio * lr` at the last step."""

    kind: Literal["constant", "cosine"] = "cosine"
    warmup_steps: int = Field(0, ge=0)
    min_ratio: float = Field(0.1, ge=0.0, le=1.0)


class Parallelism(Part):
    """`single` is one process; `ddp` replicates the model on every slot. The other degrees belong to later versions."""

    strategy: Literal["single", "ddp", "fsdp", "auto"] = "ddp"
    shard: PositiveInt = 1
    tensor: PositiveInt = 1
    pipeline: PositiveInt = 1
    context: PositiveInt = 1

    @model_validator(mode="after")
    def implemented(self) -> Parallelism:
        if self.strategy not in ("single", "ddp"):
            raise not_available_yet("parallelism.strategy", self.strategy, "use single or ddp")
        for axis in ("shard", "tensor", "pipeline", "context"):
            if getattr(self, axis) != 1:
                raise not_available_yet(f"parallelism.{axis}", getattr(self, axis), "leave it at 1")
        return self


class TrainingLength(Part):
    """How long, and in which portions. A step's global batch is a fixed list of micro-batches, whatever the world."""

    steps: PositiveInt | None = None
    epochs: PositiveInt | None = None
    global_batch_size: int = Field(32, ge=1, description="samples per optimizer step over all ranks")
    micro_batch_size: PositiveInt | None = Field(
        None, description="samples per forward; default: global batch / 8 (not reproducible: / world size), rounded up"
    )
    gradient_clip_norm: float | None = Field(1.0, gt=0)
    eval_every_steps: PositiveInt | None = 100
    eval_samples: PositiveInt | None = Field(512, description="held-out samples per evaluation; null: all")
    seed: int = Field(0, ge=0, lt=2**32)
    generate_tokens: int = Field(0, ge=0, le=100_000, description="length of the sample logged at the end (gpt only)")

    @model_validator(mode="after")
    def consistent(self) -> TrainingLength:
        if (self.steps is None) == (self.epochs is None):
            raise inconsistent("give exactly one of steps and epochs")
        if self.micro_batch_size is not None and self.micro_batch_size > self.global_batch_size:
            raise inconsistent(
                "micro_batch_size={micro} is larger than global_batch_size={total}; use {total} or less",
                micro=self.micro_batch_size,
                total=self.global_batch_size,
            )
        return self


class CheckpointPolicy(Part):
    every_steps: PositiveInt | None = Field(100, description="null: only at the end and on pause")
    keep_last: int = Field(3, ge=1, le=1000)
    keep_best: int = Field(1, ge=0, le=100)
    metric: str = Field("eval_loss", description="what best means")
    mode: Literal["min", "max"] = "min"
    directory: str | None = Field(None, description="absolute path that every node of the job sees; default: the agents' own")
    asynchronous: bool = False

    @model_validator(mode="after")
    def usable(self) -> CheckpointPolicy:
        if self.directory is not None and not PurePosixPath(self.directory).is_absolute():
            raise inconsistent("checkpoint.directory={path} is not an absolute path", path=self.directory)
        if self.asynchronous:
            raise not_available_yet("checkpoint.asynchronous", True, "leave it out: saves are synchronous")
        return self


class FaultTolerance(Part):
    """After a fault. `restart`: all ranks, from the newest verified checkpoint, at most `max_restarts` times. `close_up`: the other ranks of a
    ddp job go on in the same processes from the newest committed step, fewer until the job is paused and resumed; else a restart."""

    max_restarts: int = Field(3, ge=0, le=1000)
    recovery: Literal["restart", "close_up"] = "restart"


class Environment(Part):
    variables: dict[VariableName, str] = Field(default_factory=dict)
    working_directory: str | None = Field(None, description="absolute folder on the nodes; first on sys.path of the ranks")

    @model_validator(mode="after")
    def usable(self) -> Environment:
        if self.working_directory is not None and not PurePosixPath(self.working_directory).is_absolute():
            raise inconsistent("environment.working_directory={path} is not an absolute path", path=self.working_directory)
        reserved = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} & set(self.variables)
        if reserved:
            raise inconsistent(
                "environment.variables sets {names}, which Paceline itself sets for each rank", names=", ".join(sorted(reserved))
            )
        return self


class Script(Part):
    """A torchrun-style program: executed with torchrun's environment variables, restarted as a whole when a rank fails."""

    path: str = Field(min_length=1, description="a file on the nodes, relative to environment.working_directory or absolute")
    args: tuple[str, ...] = ()


class JobSpec(Part):
    version: Literal[1] = SPEC_VERSION
    name: Name
    project: Name = "default"
    description: str = Field("", max_length=2000)
    labels: dict[LabelName, Annotated[str, Field(max_length=253)]] = Field(default_factory=dict, max_length=64)
    priority: int = Field(50, ge=0, le=100, description="higher is placed first")
    resources: Resources = Resources()
    model: Model | None = None
    data: Data | None = None
    entrypoint: EntryPoint | None = Field(None, description="module:function that returns a training.task.Task")
    script: Script | None = None
    optimizer: Optimizer = AdamW()
    schedule: Schedule = Schedule()
    parallelism: Parallelism = Parallelism()
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    reproducible: bool | None = Field(
        None, description="losses and parameters are the same to the last bit on any number of ranks; default: true, false for script"
    )
    training: TrainingLength | None = None
    checkpoint: CheckpointPolicy = CheckpointPolicy()
    fault_tolerance: FaultTolerance = FaultTolerance()
    environment: Environment = Environment()

    @property
    def world_size(self) -> int:
        return self.resources.world_size

    @property
    def closes_up(self) -> bool:
        """Whether survivors of a fault go on without the lost ranks."""
        return self.fault_tolerance.recovery == "close_up" and self.script is None and self.world_size > 1

    @property
    def min_ranks(self) -> int:
        """The fewest ranks that a job which closes up goes on with."""
        return 1 if self.resources.min_nodes is None else self.resources.min_nodes * self.resources.slots_per_node

    @property
    def is_reproducible(self) -> bool:
        """True unless refused: it costs too little to be worth a question. A script adds up its gradients by itself."""
        return self.script is None if self.reproducible is None else self.reproducible

    @property
    def micro_batch_size(self) -> int:
        """Samples per forward pass; only for specs with a `training` part. A reproducible job's does not depend on its resources."""
        assert self.training is not None
        parts = DEFAULT_MICRO_BATCHES if self.is_reproducible else self.world_size
        return self.training.micro_batch_size or -(-self.training.global_batch_size // parts)

    @property
    def micro_batches(self) -> int:
        """Micro-batches in one global batch; the last one may be smaller."""
        assert self.training is not None
        return -(-self.training.global_batch_size // self.micro_batch_size)

    @field_validator("precision")
    @classmethod
    def implemented(cls, precision: str) -> str:
        if precision == "fp16":
            raise not_available_yet("precision", precision, "use bf16 or fp32")
        return precision

    @model_validator(mode="after")
    def one_workload(self) -> JobSpec:
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
        if (self.training is None) != (self.script is not None):
            raise inconsistent("training is required, except for script, where the script itself decides")
        if self.script is not None and self.reproducible:
            raise inconsistent("reproducible=true needs Paceline's trainer: leave it out for script, or use model or entrypoint")
        return self

    @model_validator(mode="after")
    def only_what_closes_up_shrinks(self) -> JobSpec:
        if self.resources.min_nodes not in (None, self.resources.nodes) and not self.closes_up:
            raise not_available_yet("resources.min_nodes", self.resources.min_nodes, "set fault_tolerance.recovery to close_up")
        return self

    @model_validator(mode="after")
    def strategy_fits_world(self) -> JobSpec:
        if self.parallelism.strategy == "single" and self.world_size != 1:
            raise inconsistent(
                "strategy single is one process, but resources ask for {world} slots; use ddp or one slot", world=self.world_size
            )
        if self.training is not None and self.micro_batches < self.world_size:
            raise inconsistent(
                "global_batch_size={total} in micro-batches of {micro} makes {count}, fewer than {world} ranks; {way_out}",
                total=self.training.global_batch_size,
                micro=self.micro_batch_size,
                count=self.micro_batches,
                world=self.world_size,
                way_out=self._enough_micro_batches(),
            )
        return self

    def _enough_micro_batches(self) -> str:
        assert self.training is not None
        total, world = self.training.global_batch_size, self.world_size
        return f"use micro_batch_size={total // world}" if total >= world else f"use global_batch_size={world} or more"


def json_schema() -> dict[str, Any]:
    """The published JSON Schema of a job spec."""
    return JobSpec.model_json_schema()
