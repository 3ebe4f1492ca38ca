"""The `optimizer` and `schedule` sections: how parameters are updated, and with which learning rate. Pure pydantic."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from paceline.training.schema.parts import MOST_STEPS, Fraction, Part, Real, Whole


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
