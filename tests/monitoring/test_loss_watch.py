from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable

import pytest

from paceline.monitoring.loss_watch import LEAST_SPREAD, NEW_LEVEL, SPREADS, WARM_UP, WINDOW, BadLossKind, LossWatch

#: A loss by its step and a source of chance.
Curve = Callable[[int, random.Random], float]
STEPS = 2000
WELL: dict[str, Curve] = {
    "a language model's": lambda step, chance: 2 + 8.8 * math.exp(-step / 300) + chance.gauss(0, 0.1),
    "falling to zero": lambda step, chance: 2.3 * math.exp(-step / 100) * chance.lognormvariate(0, 0.4),
    "noise of a third": lambda step, chance: 1 + chance.gauss(0, 0.3),
    "skewed noise": lambda step, chance: chance.expovariate(1.0),
    "a plateau": lambda step, chance: math.log(2) + chance.gauss(0, 1e-4),
    "constant": lambda step, chance: 1.0,
    "below zero": lambda step, chance: -0.01 * step + chance.gauss(0, 1),
    "warm-up that rises first": lambda step, chance: 1 + min(step, 100) / 50 + chance.gauss(0, 0.05),
    "every fifth batch is harder": lambda step, chance: (3.0 if step % 5 == 0 else 1.0) + chance.gauss(0, 0.05),
    "a slow divergence": lambda step, chance: 1.002**step + chance.gauss(0, 0.02),
}
#: Recorded: an MLP of 16 on digits, adamw with a rate of 3e-3, batches of 16, seed 0; steps 1 to 100.
DIGITS = [
    *(2.33, 2.29, 2.24, 2.26, 2.27, 2.32, 2.24, 2.22, 2.27, 2.22, 2.22, 2.25, 2.25, 2.23, 2.26, 2.23, 2.22, 2.28, 2.14, 2.18),
    *(2.18, 2.15, 2.14, 2.20, 2.19, 2.10, 2.12, 2.18, 2.17, 2.14, 2.20, 2.03, 2.17, 2.10, 2.07, 2.07, 2.09, 2.03, 2.03, 1.98),
    *(2.09, 2.05, 2.07, 1.95, 1.94, 1.99, 1.99, 1.95, 2.03, 1.99, 1.98, 1.92, 1.90, 1.84, 1.93, 1.91, 1.82, 2.01, 1.89, 1.85),
    *(1.97, 1.89, 1.84, 1.81, 1.85, 1.78, 1.94, 1.80, 1.79, 1.94, 1.84, 1.91, 1.71, 1.77, 1.87, 1.79, 1.67, 1.78, 1.88, 1.76),
    *(1.83, 1.77, 1.73, 1.75, 1.68, 1.66, 1.65, 1.67, 1.76, 1.67, 1.79, 1.69, 1.59, 1.77, 1.65, 1.78, 1.64, 1.67, 1.70, 1.65),
]


def bad(losses: Iterable[float], first: int = 1, watch: LossWatch | None = None) -> list[tuple[int, BadLossKind, bool]]:
    """(step, kind, whether it is news) of each bad loss."""
    watch, found = watch or LossWatch(), []
    for step, loss in enumerate(losses, first):
        kind = watch.kind_of(loss)
        if kind is not None:
            found.append((step, kind, watch.is_news(kind, step)))
        watch = watch.after(step, loss, kind)
    return found


def after(losses: Iterable[float]) -> LossWatch:
    watch = LossWatch()
    for step, loss in enumerate(losses, 1):
        watch = watch.after(step, loss, watch.kind_of(loss))
    return watch


@pytest.mark.parametrize("name", WELL)
@pytest.mark.parametrize("seed", [0, 1])
def test_no_alarm_on_a_curve_that_is_well(name: str, seed: int) -> None:
    chance = random.Random(f"{name}{seed}")
    assert bad(WELL[name](step, chance) for step in range(STEPS)) == []


def test_no_alarm_at_the_beginning_nor_on_few_points() -> None:
    assert bad(DIGITS) == []
    assert bad([*DIGITS, 6.0]) == [(101, "spike", True)]
    assert bad([1.0] * (WARM_UP - 1) + [1e6]) == []
    assert bad([1.0] * WARM_UP + [1e6]) == [(WARM_UP + 1, "spike", True)]


@pytest.mark.parametrize("name", ["a language model's", "noise of a third", "a plateau", "falling to zero"])
def test_a_spike_is_seen_in_any_of_them(name: str) -> None:
    chance = random.Random(name)
    losses = [WELL[name](step, chance) for step in range(500)]
    losses[400] = 10 * max(losses[300:400])
    assert bad(losses) == [(401, "spike", True)]


def test_the_limit_is_the_formula() -> None:
    losses = [float(number) for number in range(WINDOW)]
    assert after([1000.0, *losses]).limit == 31.5 + SPREADS * (56.0 - 31.5)  # the oldest one is forgotten
    assert after([2.0] * WINDOW).limit == 2.0 + SPREADS * LEAST_SPREAD * 2.0


def test_an_episode_is_told_once_and_a_second_spike_is_measured_like_the_first() -> None:
    losses = [1.0] * 50 + [9.0] * 5 + [1.0] * 10 + [9.0] + [1.0] * WINDOW + [9.0]
    found = bad(losses)
    assert [step for step, _, _ in found] == [51, 52, 53, 54, 55, 66, 131]
    assert [step for step, _, is_news in found if is_news] == [51, 131]


def test_what_stays_high_is_a_new_level() -> None:
    found = bad([1.0] * 50 + [9.0] * 500)
    assert [step for step, _, _ in found] == list(range(51, 51 + NEW_LEVEL))


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_told_as_it_begins_also_right_after_a_spike(loss: float) -> None:
    found = bad([1.0] * 50 + [9.0] + [loss] * 3 + [1.0])
    assert found == [(51, "spike", True), (52, "not_finite", True), (53, "not_finite", False), (54, "not_finite", False)]
    assert bad([loss]) == [(1, "not_finite", True)]


def test_gradients_that_are_not_finite_leave_their_loss_out_of_the_window() -> None:
    watch = after([1.0] * 40)
    assert watch.after(41, 1.0, "not_finite").losses == watch.losses
