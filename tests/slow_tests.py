"""A test of over ten seconds carries `@pytest.mark.slow("why")`, or `e2e`, which says it: a whole Paceline with real ranks.

A run names those that took so long and do not say why; it fails none, since machines differ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

#: Of the test itself: a stack or a database that several tests share is made in the setup of the first.
LONG_SECONDS = 10.0
#: Markers that say why.
REASONS = frozenset({"slow", "e2e"})
TITLE = 'over ten seconds, and no @pytest.mark.slow("why")'


def require_reasons(items: Iterable[pytest.Item]) -> None:
    """Raise UsageError for a marker that does not say why its test is slow."""
    for item in items:
        for marker in item.iter_markers("slow"):
            if not (marker.args and isinstance(marker.args[0], str) and marker.args[0].strip()):
                raise pytest.UsageError(f'{item.nodeid} is marked as slow without a reason; use @pytest.mark.slow("why it takes so long")')


def unexplained(reports: Sequence[pytest.TestReport]) -> list[tuple[float, str]]:
    """Return the seconds and the ids of tests that took long and have no marker, the longest first."""
    found = [(each.duration, each.nodeid) for each in reports if each.when == "call" and each.duration > LONG_SECONDS]
    marked = {each.nodeid for each in reports if REASONS & {*each.keywords}}
    return sorted(((seconds, test) for seconds, test in found if test not in marked), reverse=True)


def name_unexplained(terminal: pytest.TerminalReporter) -> None:
    """Write the tests that ought to say why they are slow, if there are any."""
    reports = [each for some in terminal.stats.values() for each in some if isinstance(each, pytest.TestReport)]
    if slow := unexplained(reports):
        terminal.section(TITLE)
        for seconds, test in slow:
            terminal.write_line(f"{seconds:6.1f} s  {test}")
