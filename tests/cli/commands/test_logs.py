"""How a log line is printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from paceline.cli.api_types import LogEntry
from paceline.cli.formats import printed_line
from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator, job, line


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


@pytest.mark.parametrize(("form", "read"), [("jsonl", json.loads), ("json", lambda text: json.loads(text)[0])])
def test_lines_for_scripts_keep_the_order_of_their_fields(
    paceline: Paceline, coordinator: FakeCoordinator, form: str, read: Callable[[str], dict[str, Any]]
) -> None:
    told = line(1, "step 1", generation=3)
    coordinator.on("GET", f"/training/jobs/{job()['id']}/logs", Answer(200, {"items": [told], "next_after": 1, "complete": True}))
    found = read(paceline("logs", job()["id"], "--output", form).stdout)
    assert found == told
    assert list(found) == ["seq", "rank", "time", "level", "text", "generation"]
