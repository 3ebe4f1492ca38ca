"""The `optimizer` and `schedule` sections: how parameters are updated, and with which learning rate. Pure pydantic."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from paceline.training.schema.parts import MOST_STEPS, Fraction, Part, PositiveInt, Real, Whole, inconsistent


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

    @model_validator(mode="after")
    def check_nesterov(self) -> Sgd:
        if self.nesterov and self.momentum == 0:
            raise inconsistent("nesterov=true needs momentum over 0, and momentum is 0: give it, such as 0.9, or leave nesterov out")
        return self


class NAdam(Part):
    """Adam with Nesterov momentum (Dozat 2016), with decoupled weight decay."""

    kind: Literal["nadam"] = "nadam"
    lr: Real = Field(2e-3, gt=0)
    betas: tuple[Fraction, Fraction] = (0.9, 0.999)
    eps: Real = Field(1e-8, gt=0)
    momentum_decay: Real = Field(4e-3, ge=0)
    weight_decay: Real = Field(0.0, ge=0)


class RmsProp(Part):
    """RMSprop (Hinton 2012) with momentum."""

    kind: Literal["rmsprop"] = "rmsprop"
    lr: Real = Field(1e-2, gt=0)
    alpha: Fraction = 0.99
    momentum: Fraction = 0.9
    eps: Real = Field(1e-8, gt=0)
    weight_decay: Real = Field(0.0, ge=0)


class Adafactor(Part):
    """Adafactor (Shazeer and Stern 2018): of a matrix it keeps a row and a column in place of moments."""

    kind: Literal["adafactor"] = "adafactor"
    lr: Real = Field(1e-2, gt=0)
    beta2_decay: Real = Field(-0.8, le=0)
    clip_threshold: Real = Field(1.0, ge=1, description="Largest root mean square of an update, in units of the learning rate.")
    weight_decay: Real = Field(0.0, ge=0)


Optimizer = Annotated[AdamW | Sgd | NAdam | RmsProp | Adafactor, Field(discriminator="kind")]


def _absent(value: object) -> bool:
    """Whether a field can be left out of a document: nodes of the version before do not know it."""
    return value is None


class Schedule(Part):
    """Learning rate: linear warm-up to the optimizer's lr, then `kind`: constant; cosine down to `min_ratio * lr` at the last step; step,
    multiplied by `gamma` after every `step_size` steps; warm_restarts, cosine in cycles that begin anew at lr."""

    kind: Literal["constant", "cosine", "step", "warm_restarts"] = "cosine"
    warmup_steps: Whole = Field(0, ge=0, le=MOST_STEPS)
    min_ratio: Real = Field(0.1, ge=0.0, le=1.0)
    step_size: PositiveInt | None = Field(
        None, exclude_if=_absent, description="step: number of steps after which the rate is multiplied by gamma, counted from the warm-up."
    )
    gamma: Real | None = Field(None, gt=0, lt=1, exclude_if=_absent, description="step: factor of the learning rate. Default: 0.1.")
    cycle_steps: PositiveInt | None = Field(
        None, exclude_if=_absent, description="warm_restarts: steps of the first cycle after the warm-up."
    )
    cycle_growth: Whole | None = Field(
        None,
        ge=1,
        le=1000,
        exclude_if=_absent,
        description="warm_restarts: length of each cycle relative to the one before. Default: 1.",
    )

    @model_validator(mode="after")
    def check_fields_of_kind(self) -> Schedule:
        needed = {"step": "step_size", "warm_restarts": "cycle_steps"}.get(self.kind)
        if needed is not None and getattr(self, needed) is None:
            raise inconsistent("kind={kind} needs {field}: give the steps", kind=self.kind, field=needed)
        for kind, names in {"step": ("step_size", "gamma"), "warm_restarts": ("cycle_steps", "cycle_growth")}.items():
            given = [name for name in names if getattr(self, name) is not None]
            if kind != self.kind and given:
                raise inconsistent("{field} is for kind {kind}, not {own}; leave it out", field=given[0], kind=kind, own=self.kind)
        return self
