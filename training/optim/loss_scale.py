"""What losses are multiplied by before backward: fp16 knows nothing below 6e-8, and small gradients would be zero.

The rule and the numbers are those of torch.amp.GradScaler (Micikevicius et al. 2018, section 3.2), as a value instead of a tensor on one
device: a part of the state that ranks agree on, save and send. Powers of two, so that scaling changes no digit. Whether gradients have overflowed
shows in the norm of all of them, which every rank has anyway: they decide alike without another word. No torch in here.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol

from paceline.training.errors import InvalidInputError

INITIAL = 2.0**16
GROWTH_FACTOR = 2.0
BACKOFF_FACTOR = 0.5
#: Good steps in a row after which the next scale is tried.
GROWTH_INTERVAL = 2000
#: fp16's smallest normal number. A job that overflows even so has gradients above 1e9, or none that are numbers: it would skip for ever.
LEAST = 2.0**-14


class Scalar(Protocol):
    """A tensor of one number."""

    def item(self) -> Any: ...


class ReadOnce:
    """A scalar that is fetched from its device at most once. A second fetch would wait for all work that the device has been given since."""

    def __init__(self, scalar: Scalar) -> None:
        self._scalar = scalar

    def item(self) -> float:
        return self._value

    @functools.cached_property
    def _value(self) -> float:
        return float(self._scalar.item())


@dataclass(frozen=True)
class Unscaled:
    """fp32, and bf16, which has its exponents."""

    value: float = 1.0
    skipped_updates: int = 0
    skips_overflows: ClassVar[bool] = False

    def admits(self, norm: Scalar) -> bool:
        """Return whether to apply gradients of this norm. Does not read the norm, which on a GPU would wait for it."""
        return True

    def after(self, step: int, *, applied: bool) -> Unscaled:
        """Return the scale to use once `step` is committed. `applied` is False if the update was skipped for an overflow."""
        return self

    def resumed(self, saved: LossScale | None) -> Unscaled:
        """Return the scale for a job that continues from a checkpoint with `saved`."""
        return self

    @property
    def saved(self) -> LossScale | None:
        """Loss scale to store in a checkpoint; None if there is none."""
        return None

    @property
    def metrics(self) -> dict[str, float]:
        return {}


UNSCALED = Unscaled()


@dataclass(frozen=True)
class LossScale(Unscaled):
    """fp16. The same on every rank."""

    value: float = INITIAL
    skipped_updates: int = 0  # since step 0
    good_steps: int = 0  # in a row, since the value changed
    skips_overflows: ClassVar[bool] = True

    def admits(self, norm: Scalar) -> bool:
        return math.isfinite(norm.item())

    def after(self, step: int, *, applied: bool) -> LossScale:
        """Return the scale to use once `step` is committed. Raises InvalidInputError where no scale is small enough."""
        if not applied:
            return self._backed_off(step)
        if self.good_steps + 1 < GROWTH_INTERVAL:
            return replace(self, good_steps=self.good_steps + 1)
        return replace(self, value=self.value * GROWTH_FACTOR, good_steps=0)

    def _backed_off(self, step: int) -> LossScale:
        if self.value <= LEAST:
            raise InvalidInputError(
                f"step {step}: gradients overflow in fp16 at a loss scale of {self.value:.1e}, the least, or are no numbers at all; use "
                "precision bf16 or fp32, or a smaller learning rate. The step was not applied"
            )
        return replace(self, value=self.value * BACKOFF_FACTOR, good_steps=0, skipped_updates=self.skipped_updates + 1)

    def resumed(self, saved: LossScale | None) -> LossScale:
        return saved or self

    @property
    def saved(self) -> LossScale:
        return self

    @property
    def metrics(self) -> dict[str, float]:
        return {"loss_scale": self.value, "skipped_updates": float(self.skipped_updates)}


def loss_scale_for(precision: Literal["fp32", "bf16", "fp16"]) -> Unscaled:
    return LossScale() if precision == "fp16" else UNSCALED
