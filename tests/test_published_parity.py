"""What is published is what was shown: all of it, whichever process showed it, and nothing else."""

from __future__ import annotations

import pytest

from tests import published_parity
from tests.parity_table import Row

ROW = Row("fsdp", 2, "a tied gpt", "fp32", 1e-5, (1e-7, None, 2e-6))
OTHER = Row("ddp (tensor 2)", 2, "frozen parameters", "fp32", 1e-5, (1e-7, 1e-7, 2e-6))


def test_a_row_outlives_its_way_between_processes() -> None:
    assert Row.of(list(ROW.plain)) == ROW


def test_figures_may_differ_from_machine_to_machine() -> None:
    assert published_parity.compare([ROW, OTHER], {OTHER.key, ROW.key}) is None


def test_what_is_missing_on_either_side_is_named() -> None:
    message = published_parity.compare([ROW], {OTHER.key})
    assert message is not None
    assert "shown, not published: fsdp | 2 | a tied gpt | fp32 | 1e-05" in message
    assert "published, not shown: ddp (tensor 2) | 2 | frozen parameters | fp32 | 1e-05" in message


def test_a_run_of_some_tests_proves_nothing_about_the_table(request: pytest.FixtureRequest) -> None:
    reason = published_parity.incomplete(request.session, {"test_parity.py"})
    assert reason is not None
    assert reason.startswith("this run is of")
