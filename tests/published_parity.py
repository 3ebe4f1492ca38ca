"""Holds the published parity table against the rows that a run has shown, in whichever process: reported as if it were the run's last test."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import pytest

from tests import parity_table
from tests.parity_table import Row

HERE = Path(__file__).parent
SHOWING = frozenset({path.name for path in (HERE / "parallelism").rglob("test_parity*.py")} | {"test_pipeline_jobs.py"})
PROPERTY = "parity"  # of a test's report, which reaches the process that ends the run
NODE_ID = "parallelism/parity.md"
Outcome = Literal["passed", "failed", "skipped"]


class RowsInReports:
    """In every process that runs tests."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        if call.when == "call":
            item.user_properties += [(PROPERTY, row.plain) for row in parity_table.take()]


class PublishedParity:
    """In the process that ends the run."""

    def __init__(self, *, write: bool) -> None:
        self.write = write
        self.rows: list[Row] = []
        self.files: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self.files.add(Path(report.location[0]).name)
            self.rows += [Row.of(value) for name, value in report.user_properties if name == PROPERTY and isinstance(value, Sequence)]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not self.rows and not self.write:
            return
        outcome, message = self._judge(incomplete(session, self.files))
        where = (NODE_ID, 0, NODE_ID)
        longrepr = (NODE_ID, 0, message) if outcome == "skipped" else message or None
        report = pytest.TestReport(NODE_ID, where, {}, outcome, longrepr, "call")
        session.config.hook.pytest_runtest_logreport(report=report)
        if outcome == "failed":
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _judge(self, reason: str | None) -> tuple[Outcome, str]:
        """A run of some tests can still show what is not published."""
        if reason and self.write:
            return "failed", f"the table is of all parity tests: {reason}"
        if self.write:
            parity_table.publish(self.rows)
        published = parity_table.published_keys()
        differences = compare(self.rows, published & {row.key for row in self.rows} if reason else published)
        if differences:
            return "failed", differences
        return ("skipped", f"the table is of all parity tests: {reason}") if reason else ("passed", "")


def incomplete(session: pytest.Session, files: Iterable[str]) -> str | None:
    """Why not all parity tests have told what they show."""
    chosen = [argument for argument in session.config.args if "::" in argument] or session.config.getoption("keyword")
    if chosen or SHOWING - set(files):
        return f"this run is of {chosen or 'other files'}"
    if session.config.getoption("markexpr"):
        return "this run leaves marked tests out"
    return "tests have failed" if session.testsfailed else None


def compare(rows: Iterable[Row], published: set[tuple[str, ...]]) -> str | None:
    """What is shown and not published, or published and not shown."""
    shown = {row.key for row in rows}
    lines = [f"shown, not published: {' | '.join(key)}" for key in sorted(shown - published)]
    lines += [f"published, not shown: {' | '.join(key)}" for key in sorted(published - shown)]
    return "\n".join([*lines, "PACELINE_WRITE_PARITY=1 writes the table anew"]) if lines else None


def register(config: pytest.Config) -> None:
    """`config.workerinput` is there in a worker of pytest-xdist alone."""
    config.pluginmanager.register(RowsInReports())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(PublishedParity(write=bool(os.environ.get("PACELINE_WRITE_PARITY"))))
