"""Slow tests say why, or are named at the end of a run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from tests import slow_tests

ROOT = Path(__file__).parents[1]


def report(test: str, seconds: float, *keywords: str, when: Literal["setup", "call", "teardown"] = "call") -> pytest.TestReport:
    return pytest.TestReport(test, (test, 1, test), dict.fromkeys(keywords, 1), "passed", None, when, duration=seconds)


def test_those_that_do_not_say_why_are_named_the_slowest_first() -> None:
    reports = [
        report("quick", 9.9),
        report("long", 10.1),
        report("explained", 90.0, "slow"),
        report("whole stack", 90.0, "e2e"),
        report("longest", 60.0),
        report("first of a stack", 60.0, when="setup"),
        report("first of a stack", 1.0),
    ]
    assert slow_tests.unexplained(reports) == [(60.0, "longest"), (10.1, "long")]


@pytest.mark.parametrize("reason", [(), ("",), (" ",), (12,)])
def test_a_marker_without_a_reason_is_refused(request: pytest.FixtureRequest, reason: tuple[object, ...]) -> None:
    request.node.add_marker(pytest.mark.slow(*reason))
    with pytest.raises(pytest.UsageError, match="marked as slow without a reason"):
        slow_tests.require_reasons([request.node])


def test_a_reason_is_enough(request: pytest.FixtureRequest) -> None:
    request.node.add_marker(pytest.mark.slow("two ranks meet"))
    slow_tests.require_reasons([request.node])


CONFTEST = """
from tests import slow_tests

slow_tests.LONG_SECONDS = -1.0

def pytest_terminal_summary(terminalreporter):
    slow_tests.name_unexplained(terminalreporter)
"""


def test_a_run_names_them(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow(reason): takes long\n")
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_silent.py").write_text("def test_one(): pass\n")
    (tmp_path / "test_explained.py").write_text('import pytest\npytestmark = pytest.mark.slow("a story")\ndef test_one(): pass\n')
    # One worker, so that reports travel; of the plugins no other one, which would take most of the time.
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "xdist.plugin", "-n", "1"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    written = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100).stdout
    named = written.partition(slow_tests.TITLE)[2]
    assert "s  test_silent.py::test_one" in named, written
    assert "test_explained.py" not in named
