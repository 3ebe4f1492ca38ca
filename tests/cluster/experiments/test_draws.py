"""Which of a search's former draws stay when it is posted again."""

from __future__ import annotations

from typing import Any

from paceline.cluster.experiments.draws import SAME_JOB, cells_of_draw, cells_of_former_draws
from paceline.cluster.experiments.facts import Cell
from paceline.cluster.experiments.spec import ExperimentSpec
from tests.cluster.experiments.specs import experiment, job

RATE, DECAY = "optimizer.lr", "optimizer.weight_decay"


def search(parameters: dict[str, Any], **changes: Any) -> ExperimentSpec:
    return experiment(search={"trials": 9, "parameters": parameters}, **changes)


RATES = {RATE: {"low": 0.001, "high": 1.0}}
DRAWS = {3: {RATE: 0.5}, 5: {RATE: 0.01}, 7: {RATE: 0.1}}


def drawn(spec: ExperimentSpec) -> set[str]:
    return {cell.key for number, values in DRAWS.items() for cell in cells_of_draw(spec, values, number, ())}


def again(spec: ExperimentSpec) -> list[Cell]:
    return cells_of_former_draws(spec, DRAWS, drawn(search(RATES)))


def test_draws_stay_under_the_numbers_of_their_configurations() -> None:
    cells = again(search({RATE: {"low": 0.05, "high": 1.0}}, repeats=2, job=job(priority=90)))
    assert [(cell.index, cell.repeat, cell.values) for cell in cells] == [
        (6, 0, {RATE: 0.5}),
        (7, 1, {RATE: 0.5}),
        (14, 0, {RATE: 0.1}),
        (15, 1, {RATE: 0.1}),
    ], "0.01 is not drawn any more"


def test_no_draw_stays_where_the_job_is_another_one() -> None:
    assert again(search(RATES, job=job(compile=True))) == []


def test_a_draw_stays_where_a_path_more_is_drawn_or_given_only_if_its_job_is_the_same() -> None:
    assert again(search(RATES | {DECAY: [0.1, 0.2]})) == [], "none was drawn for it"
    former = {3: {RATE: 0.5, DECAY: 0.1}, 5: {RATE: 0.5, DECAY: 0.2}}
    keys = {cell.key for values in former.values() for cell in cells_of_draw(search(RATES), values, 0, ())}
    (cell,) = cells_of_former_draws(search(RATES), former, keys)
    assert (cell.index, cell.values) == (3, {RATE: 0.5})


def test_a_draw_whose_job_is_that_of_another_one_is_refused() -> None:
    spec = search({"environment": [{}, {"variables": {}}], **RATES})
    (first,) = cells_of_draw(spec, {"environment": {}, RATE: 0.5}, 0, ())
    (second,) = cells_of_draw(spec, {"environment": {"variables": {}}, RATE: 0.5}, 1, {first.key})
    assert (first.refusal, second.refusal, second.key) == (None, SAME_JOB, f"{first.key}-1")
    draws = {0: first.values, 1: second.values}
    assert cells_of_former_draws(spec, draws, {first.key, second.key}) == [first, second]
