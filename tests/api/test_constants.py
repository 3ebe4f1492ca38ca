"""What the dashboard shares with the coordinator beside types."""

from __future__ import annotations

import typing
from pathlib import Path

from paceline.api.constants import typescript
from paceline.api.services.specs.job_words import FAILURE_WORDS
from paceline.cli.job_facts import TERMINAL_STATES, TIME_LIMIT
from paceline.cluster.states import TERMINAL_JOB_STATES, EndReason
from paceline.training.link import FailureReport

GENERATED = Path(__file__).parents[2] / "dashboard" / "src" / "lib" / "constants.generated.ts"


def test_the_dashboard_has_them_as_they_are_now() -> None:
    assert GENERATED.read_text() == typescript(), "stale: python -m paceline.api.constants > dashboard/src/lib/constants.generated.ts"


def test_no_words_are_for_a_kind_that_there_is_not() -> None:
    kinds = typing.get_args(typing.get_type_hints(FailureReport)["kind"])
    assert FAILURE_WORDS.keys() <= {*kinds, *(reason.value for reason in EndReason)}


def test_the_command_line_reads_the_same_words() -> None:
    assert TERMINAL_STATES == TERMINAL_JOB_STATES == {"completed", "failed", "cancelled"}
    assert TIME_LIMIT == "time_limit"
