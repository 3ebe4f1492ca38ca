"""When a job takes its last step, by what it has told."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from paceline.api.services.scheduling.expected_ends import last_step_at
from paceline.db.models.jobs import GenerationRow
from tests.factories import START

TOLD: dict[str, Any] = {"step": 7, "eta_seconds": 75.0, "updated_at": START.isoformat()}
GENERATION = GenerationRow(job_id="j", generation=2, world_size=1, started_at=START - timedelta(seconds=5), store_token="t")


def test_the_last_step_is_taken_as_soon_as_its_job_has_said() -> None:
    assert last_step_at(TOLD, GENERATION) == START + timedelta(seconds=75)


@pytest.mark.parametrize("missing", ["eta_seconds", "updated_at"])
def test_nothing_is_known_of_a_job_that_has_said_nothing(missing: str) -> None:
    assert last_step_at({name: value for name, value in TOLD.items() if name != missing}, GENERATION) is None
    assert last_step_at(TOLD | {missing: None}, GENERATION) is None


def test_what_an_earlier_generation_has_said_counts_no_more() -> None:
    later = GenerationRow(job_id="j", generation=3, world_size=1, started_at=START + timedelta(seconds=1), store_token="t")
    assert last_step_at(TOLD, later) is None
