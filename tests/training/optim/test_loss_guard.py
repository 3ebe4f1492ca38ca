from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
import torch

from paceline.monitoring.loss_watch import LossWatch
from paceline.training.optim.bad_loss import LossNotFiniteError, LossSpikeError, RollBackError
from paceline.training.optim.loss_guard import MOST_SKIPS_IN_A_ROW, LossGuard, MeasuredStep
from paceline.training.schema.fault_tolerance import FaultTolerance

WARN, SKIP = FaultTolerance(), FaultTolerance(on_nan="skip_update", on_spike="skip_update")


def measured(*losses: float, norm: float = 1.0, gradients_count: bool = True) -> MeasuredStep:
    """Of micro-batches of one size; `losses`: their own."""
    parts = [loss / len(losses) for loss in losses]
    return MeasuredStep(41, sum(parts), parts, [1 / len(losses)] * len(losses), torch.tensor(norm), gradients_count)


def seasoned() -> LossGuard:
    return LossGuard(LossWatch((1.0,) * 40))


@pytest.mark.parametrize(
    ("found", "policy", "verdict"),
    [
        (measured(1.0, 1.0), SKIP, None),
        (measured(1.0, math.nan), WARN, ("not_finite", "warn", (1,))),
        (measured(1.0, math.nan), SKIP, ("not_finite", "skip_update", (1,))),
        (measured(math.inf, -math.inf), SKIP, ("not_finite", "skip_update", (0, 1))),
        (measured(1.0, 1.0, norm=math.nan), SKIP, ("not_finite", "skip_update", (0, 1))),  # which of them did it is not known
        (measured(1.0, 1.0, norm=math.inf), WARN, None),  # not looked at
        (measured(1.0, 1.0, norm=math.inf, gradients_count=False), SKIP, None),  # fp16: the loss scale's affair
        (measured(1.0, 9.0), WARN, ("spike", "warn", (1,))),
        (measured(9.0, 9.0), SKIP, ("spike", "skip_update", (0, 1))),
        (measured(1.0, 9.0), FaultTolerance(on_nan="stop"), ("spike", "warn", (1,))),
        (measured(1.0, 9.0, norm=math.nan), FaultTolerance(on_nan="stop"), ("not_finite", "stop", (0, 1))),
    ],
)
def test_the_policy_decides_by_loss_and_gradients(found: MeasuredStep, policy: FaultTolerance, verdict: Any) -> None:
    bad = seasoned().judge(found, policy, None)
    assert (bad and (bad.kind, bad.act, bad.micro_batches)) == verdict


def test_a_step_that_the_job_has_gone_back_from_is_left_out_whatever_its_loss_is_now() -> None:
    bad = seasoned().judge(measured(1.0), FaultTolerance(on_nan="roll_back"), "not_finite")
    assert bad is not None
    assert (bad.act, bad.again, bad.holds_back, bad.ends_generation) == ("skip_update", True, True, False)


def test_twenty_skips_in_a_row_are_the_most() -> None:
    guard = LossGuard()
    for step in range(1, MOST_SKIPS_IN_A_ROW + 1):
        bad = guard.judge(measured(math.nan), SKIP, None)
        assert bad is not None
        assert bad.act == "skip_update"
        guard = guard.after(step, math.nan, bad)
    bad = guard.judge(measured(math.nan), SKIP, None)
    assert bad is not None
    assert bad.act == "stop"
    assert "after 20 skipped updates in a row" in str(guard.error(21, bad))
    assert guard.after(21, 1.0, None).judge(measured(math.nan), SKIP, None).act == "skip_update"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("losses", "policy", "error"),
    [
        ((math.nan,), FaultTolerance(on_nan="stop"), LossNotFiniteError),
        ((9.0,), FaultTolerance(on_spike="stop"), LossSpikeError),
        ((math.nan,), FaultTolerance(on_nan="roll_back"), RollBackError),
    ],
)
def test_the_error_names_what_was_bad_and_the_way_out(losses: tuple[float, ...], policy: FaultTolerance, error: type[Exception]) -> None:
    guard = seasoned()
    bad = guard.judge(measured(*losses), policy, None)
    assert bad is not None
    raised = guard.error(41, bad)
    assert type(raised) is error
    assert str(raised).startswith("the loss of step 41 is ")


@pytest.mark.parametrize(("loss", "policy"), [(math.nan, "on_nan"), (9.0, "on_spike")])
def test_a_run_that_is_rolled_back_says_for_which_loss_and_by_which_policy(loss: float, policy: str) -> None:
    """Its incident and its events said that it goes back, and not who wanted that."""
    guard = seasoned()
    bad = guard.judge(measured(loss), FaultTolerance.model_validate({policy: "roll_back"}), None)
    assert bad is not None
    said = str(guard.error(41, bad))
    assert said.startswith("the loss of step 41 is ")
    assert said.endswith(f"and skips this update then, as fault_tolerance.{policy}=roll_back asks")


def test_a_guard_comes_back_from_a_manifest_to_the_last_bit() -> None:
    guard = LossGuard(LossWatch((0.1, 1 / 3, 2.0**-40), spikes=2, told_spike=7), skipped_updates=3, skips_in_a_row=1)
    assert msgspec.json.decode(msgspec.json.encode(guard), type=LossGuard) == guard
