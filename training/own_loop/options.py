"""What a user gives a `Trainer`, checked once: the same names, values and refusals as in a job spec."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import Literal, SupportsFloat, SupportsIndex, cast, get_args

import torch
from pydantic import ValidationError

from paceline.parallelism.options import ParallelizeOptions
from paceline.parallelism.plan import Degrees, WorldSizeMismatchError
from paceline.training.errors import InvalidInputError
from paceline.training.schema.bad_loss import BadLossPolicy
from paceline.training.schema.parallelism import Parallelism
from paceline.training.spec.refusals import in_words

Precision = Literal["fp32", "bf16", "fp16"]
Recomputed = Literal["none", "selective", "full"]
#: Strategies that need to know nothing of a model's insides.
STRATEGIES = ("single", "ddp", "fsdp")
#: Axes that cut a model where only its author, or a plan, knows how; fsdp cuts by itself.
INSIDES = ("tensor", "pipeline", "context")


@dataclass(frozen=True)
class Options:
    parallelism: Parallelism
    precision: Precision
    accumulation: int  # batches of a rank in one update
    clip: float | None  # norm of all gradients together
    seed: int
    on_nan: BadLossPolicy = "warn"
    on_spike: BadLossPolicy = "warn"

    @property
    def judges_losses(self) -> bool:
        """Whether a loss may keep its update from being applied. Otherwise whoever reads the curve judges it."""
        return (self.on_nan, self.on_spike) != ("warn", "warn")

    @property
    def choices(self) -> ParallelizeOptions:
        return ParallelizeOptions(
            precision=self.precision,
            activation_checkpointing=self.parallelism.activation_checkpointing,
            reshard_after_forward=self.parallelism.reshard_after_forward,
            cpu_offload=self.parallelism.cpu_offload,
        )

    @property
    def sha256(self) -> str:
        return hashlib.sha256(repr(self).encode()).hexdigest()

    def degrees(self, world_size: int) -> Degrees:
        """Return the sizes of all axes for a world. Raises InvalidInputError if they do not fit it."""
        try:
            sizes = self.parallelism.degrees(world_size)
        except WorldSizeMismatchError as error:
            raise InvalidInputError(str(error)) from error
        if self.parallelism.cpu_offload and sizes.shard == 1:
            raise InvalidInputError(
                f"cpu_offload=True is for models in parts, but in a world of {world_size} each rank has all of it; leave it out, or start more ranks"
            )
        return sizes


def read_options(
    *,
    strategy: str | Mapping[str, object],
    mixed_precision: bool | str,
    gradient_accumulation_steps: int,
    gradient_clip_val: float | None,
    activation_checkpointing: bool | str,
    cpu_offload: bool,
    seed: int,
    on_nan: str,
    on_spike: str,
) -> Options:
    """Check a Trainer's arguments and return them as `Options`. Raises InvalidInputError."""
    return Options(
        parallelism=read_parallelism(strategy, activation_checkpointing, cpu_offload=cpu_offload),
        precision=read_precision(mixed_precision),
        accumulation=read_accumulation(gradient_accumulation_steps),
        clip=read_clip(gradient_clip_val),
        seed=read_whole("seed", seed),
        on_nan=read_bad_loss_policy("on_nan", on_nan),
        on_spike=read_bad_loss_policy("on_spike", on_spike),
    )


def read_parallelism(strategy: str | Mapping[str, object], activation_checkpointing: bool | str, *, cpu_offload: bool) -> Parallelism:
    """A strategy's name, or a spec's whole `parallelism` part; the two arguments win over what that says.

    Raises InvalidInputError for a strategy that does not fit any model, and for fields that no job spec takes.
    """
    given: dict[str, object] = {"strategy": strategy} if isinstance(strategy, str) else dict(strategy)
    name = given.get("strategy", "ddp")
    if name not in STRATEGIES:
        raise InvalidInputError(f"strategy={name!r} is none that fits any model; use {', '.join(STRATEGIES)} or auto")
    for axis in INSIDES:
        if given.get(axis, 1) != 1:
            raise InvalidInputError(
                f"strategy: {axis}={given[axis]} needs to know the model's insides; use fsdp, or submit a job with a model of ours"
            )
    if activation_checkpointing not in (False, "none"):
        given["activation_checkpointing"] = "full" if activation_checkpointing is True else activation_checkpointing
    if cpu_offload:
        given["cpu_offload"] = True
    try:
        return Parallelism.model_validate(given)
    except ValidationError as error:
        raise InvalidInputError("; ".join(describe_error(each) for each in error.errors())) from error


def describe_error(error: Mapping[str, object]) -> str:
    """Describe one validation error of `parallelism`."""
    if words := in_words(error, Parallelism):
        return words
    where = error["loc"]
    assert isinstance(where, tuple)
    return f"{'.'.join(map(str, where))}={error['input']!r}: {error['msg']}" if where else str(error["msg"])


def read_precision(given: bool | str) -> Precision:
    """Return the precision that is asked for; True is the one that this machine computes natively. Raises InvalidInputError for anything
    else."""
    if isinstance(given, bool):
        return native_half() if given else "fp32"
    if given not in get_args(Precision):
        raise InvalidInputError(
            f"mixed_precision={given!r} is not known; use fp32, bf16 or fp16, or True for the one that this machine has"
        )
    return given  # type: ignore[return-value]


def native_half() -> Precision:
    """Return bf16, or fp16 on a GPU that has no bf16 of its own."""
    lacks = torch.cuda.is_available() and not torch.cuda.is_bf16_supported(including_emulation=False)
    return "fp16" if lacks else "bf16"


def read_whole(name: str, given: object) -> int:
    """Return the argument `name` if it is a whole number. Raises InvalidInputError for anything else, such as a text of a command line."""
    if not isinstance(given, SupportsIndex) or isinstance(given, bool):
        raise InvalidInputError(f"{name}={given!r} is of type {type(given).__name__}; give a whole number")
    return index(given)


def read_accumulation(given: int) -> int:
    """Return `given` if it is a number of batches. Raises InvalidInputError if it is less than 1."""
    given = read_whole("gradient_accumulation_steps", given)
    if given < 1:
        raise InvalidInputError(f"gradient_accumulation_steps={given} is less than 1; use 1 to update after every batch")
    return given


def read_clip(given: object) -> float | None:
    """Return `given` if it is a norm or None. Raises InvalidInputError if it is not positive and finite."""
    if given is None:
        return None
    if not (isinstance(given, SupportsFloat) and 0 < float(given) < math.inf):
        raise InvalidInputError(f"gradient_clip_val={given!r} is not a positive number; use None not to clip")
    return cast(float, given)


def read_bad_loss_policy(name: str, given: str) -> BadLossPolicy:
    """Return the policy if a loop of one's own can follow it. Raises InvalidInputError: there is no going back in the middle of a user's loop."""
    if given == "roll_back":
        raise InvalidInputError(
            f"{name}=roll_back is for models and entrypoints: a loop of your own cannot be taken back to an earlier step from here; use skip_update, "
            "or stop, and start the loop again from a checkpoint"
        )
    if given not in ("warn", "stop", "skip_update"):
        raise InvalidInputError(f"{name}={given!r} is not known; use warn, stop or skip_update")
    return cast(BadLossPolicy, given)


def read_folder(given: str | Path | None) -> Path | None:
    return None if given is None else Path(given).expanduser().resolve()
