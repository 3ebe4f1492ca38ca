"""What a job trains: the models and data that are built in, and how they are optimized. Pure pydantic, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import FailFast, Field, JsonValue, field_validator, model_validator

from paceline.training.models.gpt import presets as gpt_presets
from paceline.training.models.mlp import presets as mlp_presets
from paceline.training.models.resnet import presets as resnet_presets
from paceline.training.spec.configuration import why_not_a_configuration
from paceline.training.spec.parts import MOST_STEPS, Fraction, Part, Path, Real, Text, Whole, inconsistent
from paceline.training.spec.script import Script
from paceline.training.spec.spelling import Spelling
from paceline.training.spec.training import TrainingLength

Sha256 = Annotated[
    str,
    Spelling(r"^[0-9a-f]{64}$", "64 hexadecimal digits, in lower case", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"),
]

#: In a vocabulary.
MOST_TOKENS = 1 << 24
#: Of a layer.
WIDEST = 1 << 20
PRESET = "a named size; fields that are given beside it win. A stored job has the numbers instead of the name"


def spelled_out(given: Any, presets: Mapping[Any, Mapping[str, object]]) -> Any:
    """`given` with what its preset stands for in the place of the name: a job that is stored means the same in every later version."""
    name = given.get("preset") if isinstance(given, Mapping) else None
    if not isinstance(name, str) or name not in presets:
        return given  # None, or refused by the field itself
    return {**presets[name], **given, "preset": None}


class GptModel(Part):
    """Pre-norm decoder over bytes or tokens: RoPE, SwiGLU, optionally tied embeddings."""

    kind: Literal["gpt"] = "gpt"
    preset: gpt_presets.Preset | None = Field(None, description=PRESET)
    layers: Whole = Field(4, ge=1, le=256)
    heads: Whole = Field(4, ge=1, le=256)
    dim: Whole = Field(256, ge=8, le=65536, description="width of the residual stream")
    context: Whole = Field(128, ge=8, le=1_048_576, description="tokens per sequence")
    vocab_size: Whole = Field(256, ge=2, le=MOST_TOKENS)
    dropout: Fraction = 0.0
    tied_embeddings: bool = True

    @model_validator(mode="before")
    @classmethod
    def expand_preset(cls, given: Any) -> Any:
        return spelled_out(given, gpt_presets.PRESETS)

    @model_validator(mode="after")
    def check_heads(self) -> GptModel:
        if self.dim % self.heads or (self.dim // self.heads) % 2:
            raise inconsistent(
                "dim={dim} must be an even multiple of heads={heads} (rotary embeddings need an even head size)",
                dim=self.dim,
                heads=self.heads,
            )
        return self


class MlpModel(Part):
    kind: Literal["mlp"] = "mlp"
    preset: mlp_presets.Preset | None = Field(None, description=PRESET)
    hidden: Annotated[tuple[Annotated[Whole, Field(ge=1, le=WIDEST)], ...], FailFast()] = Field((128, 128), max_length=256)
    dropout: Fraction = 0.0

    @model_validator(mode="before")
    @classmethod
    def expand_preset(cls, given: Any) -> Any:
        return spelled_out(given, mlp_presets.PRESETS)


class ResnetModel(Part):
    """CIFAR-style residual network (He et al. 2015, section 4.2): depth = 6n + 2."""

    kind: Literal["resnet"] = "resnet"
    preset: resnet_presets.Preset | None = Field(None, description=PRESET)
    depth: Whole = Field(20, ge=8, le=1202)
    width: Whole = Field(16, ge=1, le=1024, description="channels of the first stage")

    @model_validator(mode="before")
    @classmethod
    def expand_preset(cls, given: Any) -> Any:
        return spelled_out(given, resnet_presets.PRESETS)

    @field_validator("depth")
    @classmethod
    def check_depth(cls, depth: int) -> int:
        if (depth - 2) % 6:
            below = (depth - 2) // 6 * 6 + 2
            raise inconsistent("depth={depth} is not 6n + 2; use {below} or {above}", depth=depth, below=below, above=below + 6)
        return depth


class HfModel(Part):
    """A causal language model of Hugging Face transformers, which must be installed on the nodes: new, from its configuration (`config`), or
    with the weights of a local folder (`path`: config.json and safetensors). Nothing is downloaded, and no code of the folder is run."""

    kind: Literal["hf"] = "hf"
    config: dict[str, JsonValue] | None = Field(
        None, description="as in a config.json: model_type (llama, gpt2, ...) and what differs from its defaults"
    )
    path: Path | None = Field(None, description="absolute path of a folder on every node, as save_pretrained writes it")
    context: Whole = Field(128, ge=8, le=1_048_576, description="tokens per sequence")

    @model_validator(mode="after")
    def check_source(self) -> HfModel:
        if (self.config is None) == (self.path is None):
            raise inconsistent("give exactly one of config (a new model) and path (a folder with config.json and safetensors)")
        if self.path is not None and not PurePosixPath(self.path).is_absolute():
            raise inconsistent("model.path={path} is not an absolute path", path=self.path)
        if self.config is not None and (why := why_not_a_configuration(self.config)):
            raise inconsistent("model.config: {why}", why=why)
        if self.config is not None and not isinstance(self.config.get("model_type"), str):
            raise inconsistent("model.config has no model_type; give one that transformers knows, such as llama or gpt2")
        return self


class StdlibText(Part):
    """The source text of the installed Python standard library, as bytes: real text that every machine has."""

    kind: Literal["stdlib_text"] = "stdlib_text"
    holdout: Real = Field(0.1, gt=0.0, lt=1.0, description="share of files held out for evaluation")


class Tokens(Part):
    """Token files that `paceline data tokenize` has made, memory-mapped; the same ones in the same place on every node."""

    kind: Literal["tokens"] = "tokens"
    path: Path = Field(description="absolute folder on the nodes")
    holdout: Real = Field(0.1, ge=0.0, lt=1.0, description="share of documents held out for evaluation; 0: no evaluation")
    sha256: Sha256 | None = Field(
        None, description="of its manifest, as `paceline data tokenize` tells it: a node that has other files refuses to train"
    )
    verify: bool = Field(False, description="every rank compares every byte with its SHA-256 before it starts; sizes are compared anyway")

    @field_validator("path")
    @classmethod
    def check_path(cls, path: str) -> str:
        if not PurePosixPath(path).is_absolute():
            raise inconsistent("data.path={path} is not an absolute path", path=path)
        return path


class Digits(Part):
    """scikit-learn's 1,797 real 8x8 digits."""

    kind: Literal["digits"] = "digits"
    holdout: Real = Field(0.2, gt=0.0, lt=1.0)


class Cifar10(Part):
    """CIFAR-10 from a local folder (`path`, the python-version batches) or from a Hugging Face dataset (`dataset`)."""

    kind: Literal["cifar10"] = "cifar10"
    path: Path | None = None
    dataset: Annotated[Text, Field(max_length=200)] | None = None
    augment: bool = True

    @model_validator(mode="after")
    def check_source(self) -> Cifar10:
        if (self.path is None) == (self.dataset is None):
            raise inconsistent("give exactly one of path (a folder with data_batch_1..5 and test_batch) and dataset (a Hugging Face id)")
        return self


Model = Annotated[GptModel | MlpModel | ResnetModel | HfModel, Field(discriminator="kind")]
Data = Annotated[StdlibText | Tokens | Digits | Cifar10, Field(discriminator="kind")]

_TEXT = {"stdlib_text", "tokens"}
#: Which data each model family can train on.
MODEL_DATA = {"gpt": _TEXT, "hf": _TEXT, "mlp": {"digits", "cifar10"}, "resnet": {"cifar10"}}


class AdamW(Part):
    kind: Literal["adamw"] = "adamw"
    lr: Real = Field(3e-4, gt=0)
    betas: tuple[Fraction, Fraction] = (0.9, 0.95)
    eps: Real = Field(1e-8, gt=0)
    weight_decay: Real = Field(0.1, ge=0)


class Sgd(Part):
    kind: Literal["sgd"] = "sgd"
    lr: Real = Field(0.1, gt=0)
    momentum: Fraction = 0.9
    nesterov: bool = False
    weight_decay: Real = Field(0.0, ge=0)


Optimizer = Annotated[AdamW | Sgd, Field(discriminator="kind")]


class Schedule(Part):
    """Learning rate: linear warm-up to the optimizer's lr, then `kind` down to `min_ratio * lr` at the last step."""

    kind: Literal["constant", "cosine"] = "cosine"
    warmup_steps: Whole = Field(0, ge=0, le=MOST_STEPS)
    min_ratio: Real = Field(0.1, ge=0.0, le=1.0)


@dataclass(frozen=True)
class BuiltinWorkload:
    """A model and data that come with Paceline."""

    model: Model
    data: Data
    training: TrainingLength


@dataclass(frozen=True)
class EntrypointWorkload:
    """A model and data of the user's own, which `entrypoint` returns as a `paceline.Task`."""

    entrypoint: str
    training: TrainingLength


@dataclass(frozen=True)
class ScriptWorkload:
    """A program of the user's own, which trains by itself."""

    script: Script


Workload = BuiltinWorkload | EntrypointWorkload | ScriptWorkload


def workload_of(
    model: Model | None, data: Data | None, entrypoint: str | None, script: Script | None, training: TrainingLength | None
) -> Workload:
    """Return the workload that these fields of a job spec make. Raises PydanticCustomError where they make none, or more than one."""
    choices = {"model": model, "entrypoint": entrypoint, "script": script}
    given = [name for name, choice in choices.items() if choice is not None]
    if len(given) != 1:
        raise inconsistent("give exactly one of model (with data), entrypoint and script; got {given}", given=", ".join(given) or "none")
    if (model is None) != (data is None):
        raise inconsistent("model and data belong together: give both or neither")
    if script is not None:
        if training is not None:
            raise inconsistent("leave training out: the script decides")
        return ScriptWorkload(script)
    if training is None:
        raise inconsistent("training is required: give steps or epochs")
    if entrypoint is not None:
        return EntrypointWorkload(entrypoint, training)
    assert model is not None  # the choice that is left, and its data
    assert data is not None
    return BuiltinWorkload(model, data, training)
