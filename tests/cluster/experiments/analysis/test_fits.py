from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest

from paceline.cluster.experiments.analysis.fits import CommunicationPoint, Fits, fit_all, fit_alpha_beta
from paceline.cluster.experiments.analysis.least_squares import fit_two
from paceline.cluster.experiments.analysis.scaling import rank_series, references
from paceline.cluster.experiments.findings import Fit
from tests.cluster.experiments.analysis.made_up import STRATEGY, groups, repeats


def fits(seconds: dict[int, float], scaling: Literal["strong", "weak"] = "strong", **figures: Any) -> Fits:
    trials = []
    for at, (ranks, step) in enumerate(seconds.items()):
        values = {"world_size": ranks, **({STRATEGY: "ddp"} if ranks > 1 else {})}
        trials += repeats(2 * at, values, [step, step], **figures)
    if scaling == "weak":
        trials = [replace(each, samples_per_second=32 * each.world_size / (each.step_seconds or 1)) for each in trials]
    found = groups(trials)
    return fit_all(scaling, rank_series(found, references(found)))


def one(found: Fits) -> Fit:
    assert len(found.found) == 1
    return found.found[0]


def test_a_planted_serial_share_is_found() -> None:
    found = one(fits({ranks: 2.0 * (0.1 + 0.9 / ranks) for ranks in (1, 2, 4, 8)}))
    assert (found.law, found.series, found.ranks) == ("amdahl", "ddp", [1, 2, 4, 8])
    assert found.parameters["serial_share"] == pytest.approx(0.1)
    assert found.worst_residual == pytest.approx(0, abs=1e-9)
    assert "no number of ranks is more than 10 times as fast as one" in found.text


def test_a_planted_serial_share_of_growing_work_is_found() -> None:
    found = one(fits({ranks: ranks / (0.2 + 0.8 * ranks) for ranks in (1, 2, 4, 8)}, "weak"))
    assert (found.law, found.parameters["serial_share"]) == ("gustafson", pytest.approx(0.2))


def test_what_gets_slower_with_ranks_is_not_described() -> None:
    found = one(fits({1: 1.0, 2: 1.5, 4: 3.0}))
    assert found.parameters["serial_share"] == 1.0
    assert found.worst_residual > 0.3
    assert "does not describe" in found.text


def test_more_than_ideal_speed_has_no_negative_share() -> None:
    assert one(fits({1: 1.0, 2: 0.4, 4: 0.15})).parameters["serial_share"] == 0.0


def test_two_numbers_of_ranks_are_refused_with_what_is_needed() -> None:
    found = fits({1: 1.0, 2: 0.6})
    assert found.found == []
    assert found.refused == ["Not fitted to ddp: Amdahl's law, which needs 3 different numbers of ranks."]


LATENCY, BANDWIDTH = 5e-5, 2e9


def point(ranks: int, size: float) -> CommunicationPoint:
    return CommunicationPoint(ranks, size, 2 * (ranks - 1) * LATENCY + size / BANDWIDTH)


def test_planted_latency_and_bandwidth_are_found() -> None:
    found = fit_alpha_beta("ddp", [point(2, 1e6), point(4, 1.5e6), point(8, 1.75e6), point(8, 5e7)])
    assert found is not None
    assert found.parameters == pytest.approx({"latency_seconds": LATENCY, "bytes_per_second": BANDWIDTH})
    assert found.text.startswith("The alpha-beta model describes the exposed communication of ddp in 4 configurations")


@pytest.mark.parametrize(
    "points",
    [
        [point(2, 1e6), point(4, 2e6)],
        [point(2, 1e6)] * 5,
        [CommunicationPoint(2, 1e6, 3.0), CommunicationPoint(4, 2e6, 2.0), CommunicationPoint(8, 9e6, 0.1)],
    ],
    ids=["too few", "all alike", "faster with more bytes"],
)
def test_what_does_not_tell_latency_from_bandwidth_is_refused(points: list[CommunicationPoint]) -> None:
    found = fit_alpha_beta("ddp", points)
    assert found is None or found.worst_residual > 0.15


def test_columns_that_are_multiples_of_each_other_have_no_fit() -> None:
    assert fit_two([1, 2, 3], [2, 4, 6], [1, 2, 3]) is None
    assert fit_two([1, 2], [1, 1], [1, 2]) is None
    assert fit_two([0, 0, 0], [1, 2, 3], [1, 2, 3]) is None


def test_communication_is_told_only_of_several_ranks() -> None:
    found = fits({1: 1.0, 2: 0.6}, parts={"communication": 0.1}, bytes_per_step=1e6)
    assert any("alpha-beta model" in text for text in found.refused)
