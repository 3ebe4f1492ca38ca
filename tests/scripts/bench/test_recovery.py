"""What the recovery benchmark makes of what it found."""

from __future__ import annotations

from itertools import chain

import pytest

from scripts.bench import recovery
from scripts.bench.figures import Figure
from scripts.bench.peers.table import side_by_side
from scripts.bench.recovery import PARTS, figures_over_all, outage_figures, possible, stacks
from scripts.faults.series import Findings


def test_parts_that_need_the_same_stack_share_one() -> None:
    shared = stacks(list(PARTS))
    assert sorted(chain.from_iterable(shared)) == sorted(PARTS)
    assert ["namespaces", "cuts", "impatient"] in shared
    assert stacks(["spares"]) == [["spares"]]


def test_a_silent_fault_is_measured_against_this_runs_own_steps() -> None:
    (figure,) = outage_figures(PARTS["stops"], Findings(outages=[1.0, 1.2], p99_step=0.1))
    assert (figure.figure, figure.median, figure.n) == ("rank_stopped_s", 1.1, 2)
    assert figure.reference == "under 3 x p99 step + 1 s, here 1.30 s; the worst took 0.92 of that"


def test_what_falls_back_tells_how_many_steps_it_did_again() -> None:
    seconds, steps = outage_figures(PARTS["parts"], Findings(outages=[1.0, 1.4], faults=2, steps_lost=19))
    assert (seconds.figure, seconds.median) == ("fallback_s", 1.2)
    assert (steps.figure, steps.median, steps.n) == ("fallback_steps_again", 9.5, 2)


def test_losses_are_counted_over_all_faults() -> None:
    found = [Findings(faults=12, joins=[0.1, 0.3]), Findings(faults=3, hangs=1, steps_lost=2, split_brains=1)]
    joined, *counts = figures_over_all(found)
    assert (joined.figure, joined.median) == ("join_outage_s", 0.2)
    assert [(each.figure, each.median, each.n) for each in counts] == [("steps_lost", 2, 15), ("hangs", 1, 15), ("split_brains", 1, 15)]


def test_without_namespaces_their_parts_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "lacking", lambda: "network namespaces need root")
    assert possible(["ranks", "cuts", "torchft"]) == ["ranks", "torchft"]


def test_systems_stand_side_by_side() -> None:
    figures = [
        Figure("rank_killed_s", "s", 0.25, 0.5, 12, ""),
        Figure("hangs", "1", 0.0, 0.0, 12, ""),
        Figure("torchft_rank_killed_s", "s", 5.1, 5.2, 10, ""),
        Figure("torchrun-defaults_hangs", "1", 3.0, 3.0, 4, ""),
        Figure("torchft_join_outage_s", "s", 0.1, 0.2, 3, ""),
    ]
    assert side_by_side(figures).splitlines() == [
        "| figure | Paceline | torchft | torchrun-defaults |",
        "| --- | --- | --- | --- |",
        "| rank_killed_s | 0.25 s (p95 0.50, n 12) | 5.10 s (p95 5.20, n 10) |  |",
        "| hangs | 0 of 12 |  | 3 of 4 |",
        "| join_outage_s |  | 0.10 s (p95 0.20, n 3) |  |",
    ]
