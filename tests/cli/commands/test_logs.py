"""How a log line is printed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cli.commands.logs import printed_line
from cli.views import LogEntry


@pytest.mark.parametrize(
    ("level", "text", "printed"),
    [
        ("info", "step 1", "[0] step 1"),
        ("error", "Traceback", "[0] ERROR Traceback"),
        ("error", "ERROR checkpoint of step 30 failed", "[0] ERROR checkpoint of step 30 failed"),
    ],
)
def test_level_is_said_once(level: str, text: str, printed: str) -> None:
    entry = LogEntry(seq=1, time=datetime(2026, 1, 1, tzinfo=UTC), rank=0, level=level, text=text)
    assert printed_line(entry) == f"00:00:00 {printed}"
