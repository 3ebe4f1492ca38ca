from __future__ import annotations

from paceline.api.services.experiments.report.figures import scaling
from tests.api.services.experiments.report.made_up import analysis, subject


def test_configurations_that_differ_in_ranks_alone_are_one_line() -> None:
    lines = scaling.lines_of(analysis())
    assert [(line.label, [ranks for ranks, _ in line.measured]) for line in lines] == [
        (f"{strategy}, batch {batch}", [2, 4, 8]) for batch in (32, 64) for strategy in ("ddp", "fsdp")
    ]


def test_predictions_go_on_from_the_line_of_their_configuration() -> None:
    lines = scaling.lines_of(analysis())
    assert [[ranks for ranks, _ in line.predicted] for line in lines] == [[], [], [16, 64, 256, 1024], [16, 64, 256, 1024]]


def test_the_table_says_what_was_measured_and_what_was_not() -> None:
    found = scaling.figure(subject())
    assert found is not None
    sources = [row[-1] for row in found.table.rows]
    assert (sources.count("measured, 3 trials"), sources.count("predicted")) == (12, 8)
    assert "not measurements" in found.caption
    assert "strong scaling" in found.caption


def test_nothing_beyond_one_rank_is_no_figure() -> None:
    single = [each for each in analysis().configurations if each.baseline]
    assert scaling.figure(subject(configurations=single, predictions=[])) is None
