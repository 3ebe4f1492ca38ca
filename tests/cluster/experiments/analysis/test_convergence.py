from __future__ import annotations

import math

import pytest

from paceline.cluster.experiments.analysis.convergence import convergence, first_bad_step
from paceline.cluster.experiments.analysis.scaling import references
from paceline.cluster.experiments.facts import StepSeries
from paceline.cluster.experiments.findings import Convergence
from tests.cluster.experiments.analysis.made_up import STRATEGY, groups, losses, repeats

FALLING = [2 / step for step in range(1, 101)]


def compare(own: StepSeries, single: StepSeries) -> list[Convergence]:
    trials = [*repeats(0, {"world_size": 1}, [1.0], series=single), *repeats(1, {STRATEGY: "ddp", "world_size": 2}, [1.0], series=own)]
    found = groups(trials)
    return convergence(found, references(found))


def test_equal_losses_are_the_same_and_twice_as_fast() -> None:
    (found,) = compare(losses(FALLING, seconds=0.5), losses(FALLING))
    assert (found.configuration, found.reference, found.at_samples, found.same) == (1, 0, 1000, True)
    last_tenth = sum(FALLING[90:]) / 10
    assert (found.loss, found.reference_loss) == pytest.approx((last_tenth, last_tenth))
    assert found.at_seconds == 50.0
    assert found.loss_at_time == pytest.approx(last_tenth)
    assert found.reference_loss_at_time == pytest.approx(sum(FALLING[45:50]) / 5)
    assert found.text.startswith(
        "ddp, 2 ranks: after 1,000 samples the loss of one process, 0.021, but for rounding; after 50 s of training "
    )


def test_a_planted_distance_is_told() -> None:
    (found,) = compare(losses([1.1 * each for each in FALLING]), losses(FALLING))
    assert not found.same
    assert found.loss / found.reference_loss == pytest.approx(1.1)
    assert "10 % higher" in found.text
    assert found.text.endswith("One repeat cannot tell this from chance.")


def test_a_distance_over_several_repeats_is_no_matter_of_one_run() -> None:
    single, own = losses(FALLING), losses([1.1 * each for each in FALLING])
    trials = [
        *repeats(0, {"world_size": 1}, [1.0, 1.0], series=single),
        *repeats(2, {STRATEGY: "ddp", "world_size": 2}, [1.0, 1.0], series=own),
    ]
    known = groups(trials)
    (found,) = convergence(known, references(known))
    assert "10 % higher" in found.text
    assert "One repeat" not in found.text


def test_other_batches_are_compared_at_equal_samples() -> None:
    """Twice the batch for half the steps, with the same loss at the same sample."""
    own = losses([2 / (2 * step) for step in range(1, 51)], batch=20)
    (found,) = compare(own, losses(FALLING))
    assert found.at_samples == 1000
    assert found.loss == pytest.approx(found.reference_loss, rel=0.02)


def test_the_shorter_run_says_how_far() -> None:
    (found,) = compare(losses(FALLING[:30]), losses(FALLING))
    assert (found.at_samples, found.at_seconds, found.same) == (300, 30.0, True)


@pytest.mark.parametrize(
    "own", [StepSeries(), losses([math.nan] * 100), StepSeries(losses=[1.0])], ids=["nothing", "not finite", "no samples"]
)
def test_without_finite_losses_there_is_no_comparison(own: StepSeries) -> None:
    assert compare(own, losses(FALLING)) == []


def test_where_a_loss_stopped_being_finite() -> None:
    trial = repeats(0, {}, [1.0], series=losses([1.0, 2.0, math.inf, math.nan]))[0]
    assert first_bad_step(trial) == 3
    assert first_bad_step(repeats(0, {}, [1.0], series=losses(FALLING))[0]) is None
