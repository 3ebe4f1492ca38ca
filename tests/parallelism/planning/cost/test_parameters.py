"""Which parameters trials can show."""

from __future__ import annotations

import pytest

from paceline.parallelism.plan import Degrees
from paceline.parallelism.planning.cost.parameters import IN_ORDER, MeasuredPlan, Parameter, of_rate, parameters_for
from paceline.parallelism.planning.memory import TrainingSetup
from tests.parallelism.planning.cost.machines import START
from tests.parallelism.planning.shapes import decoder


def plans(degrees: Degrees, ranks_by_node: tuple[int, ...] = (), count: int = 40) -> list[MeasuredPlan]:
    return [MeasuredPlan(decoder(), TrainingSetup(degrees), 1.0, ranks_by_node)] * count


def names(plans: list[MeasuredPlan]) -> set[str]:
    return {parameter.name for parameter in parameters_for(plans)}


def test_links_are_shown_by_ranks_that_use_them() -> None:
    alone, beside, apart = (plans(Degrees()), plans(Degrees(replicate=2)), plans(Degrees(replicate=2), (1, 1)))
    assert not any("within" in name or "between" in name or "beside" in name for name in names(alone))
    assert {"bandwidth within a machine", "slowdown beside other ranks"} <= names(beside)
    assert "bandwidth between machines" in names(apart)
    assert not any("within" in name or "beside" in name for name in names(apart))


def test_there_are_at_most_half_as_many_parameters_as_trials() -> None:
    assert len(parameters_for(plans(Degrees(replicate=2), count=6))) == 3
    assert len(parameters_for(plans(Degrees(replicate=2), count=1))) == 1


@pytest.mark.parametrize("parameter", [of_rate("fp32"), *IN_ORDER], ids=lambda parameter: parameter.name)
def test_each_parameter_changes_what_it_is_read_from(parameter: Parameter) -> None:
    changed = parameter.put(START, 7.0)
    assert parameter.get(changed) == 7.0
    assert all(other.get(changed) == other.get(START) for other in IN_ORDER if other.name != parameter.name)
