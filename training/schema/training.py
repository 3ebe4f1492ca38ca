"""The `training` section: how long a job trains, and in which portions. Pure pydantic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, model_validator

from paceline.training.schema.amounts import CountOrAuto
from paceline.training.schema.parts import MOST_EPOCHS, MOST_SAMPLES, Part, PositiveInt, Real, Whole, absent, inconsistent

#: Each is a save and a new start.
MOST_PAUSES = 64


class TrainingLength(Part):
    """How long, and in which portions. A step's global batch is a fixed list of micro-batches, whatever the world."""

    steps: PositiveInt | None = None
    epochs: Annotated[Whole, Field(ge=1, le=MOST_EPOCHS)] | None = None
    global_batch_size: Whole = Field(32, ge=1, le=MOST_SAMPLES, description="Samples per optimizer step, over all ranks.")
    micro_batch_size: CountOrAuto | None = Field(
        None,
        description="Samples per forward pass. `auto`: largest size that fits in memory, found with trial steps. Default: global batch / 8 per "
        "rank of a replica (/ 4 per rank of a pipeline, / world size if not reproducible), rounded up.",
    )
    gradient_clip_norm: Real | None = Field(1.0, gt=0)
    eval_every_steps: PositiveInt | None = 100
    eval_samples: PositiveInt | None = Field(512, description="Held-out samples per evaluation. All of them if null.")
    data_workers: Whole = Field(
        0, ge=0, le=64, description="Threads per rank that prepare the next micro-batches during training. Results do not change."
    )
    seed: Whole = Field(0, ge=0, lt=2**32)
    generate_tokens: Whole = Field(0, ge=0, le=100_000, description="Length of the text generated and logged at the end (gpt only).")
    pause_at_steps: Annotated[list[PositiveInt], Field(min_length=1, max_length=MOST_PAUSES)] | None = Field(
        None,
        exclude_if=absent,
        description="Steps, in rising order, after which the job evaluates, saves and pauses. It holds no slots until resumed.",
    )

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

    @model_validator(mode="after")
    def check_pauses(self) -> TrainingLength:
        pauses = self.pause_at_steps or []
        if pauses != sorted(set(pauses)):
            raise inconsistent(
                "pause_at_steps={pauses} must rise from each step to the next; use {sorted}", pauses=pauses, sorted=sorted(set(pauses))
            )
        if pauses and self.steps is not None and pauses[-1] >= self.steps:
            raise inconsistent(
                "pause_at_steps ends with {last}, but training ends after steps={steps}; leave out what is not less",
                last=pauses[-1],
                steps=self.steps,
            )
        return self

    @property
    def pauses(self) -> Sequence[int]:
        """The steps after which the job pauses by itself."""
        return self.pause_at_steps or ()
