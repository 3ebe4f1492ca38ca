"""A test run where there is no torch: modules that import it are skipped and named. The others, of the coordinator say, need no more than it does."""

from __future__ import annotations

import pytest

NEEDED = "torch"


def skip_where_it_is_missing(collector: pytest.Collector, report: pytest.CollectReport) -> None:
    """Make a skip of the report on a module that could not be imported for want of torch."""
    call = getattr(report, "call", None)
    cause = call.excinfo.value.__cause__ if call is not None and call.excinfo is not None else None
    if isinstance(cause, ModuleNotFoundError) and (cause.name or "").partition(".")[0] == NEEDED:
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, f"Skipped: {NEEDED} is not installed")
