"""The short form of `python -m scripts.faults.outage`, which goes without a coordinator for ten minutes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from scripts.faults.outage import unequal
from scripts.steps import ROOT

SECONDS = 20
TIMEOUT_SECONDS = 400.0

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(TIMEOUT_SECONDS + 10)]


def test_what_jobs_produce_without_a_coordinator_arrives_afterwards_exactly_once(tmp_path: Path) -> None:
    outcome = tmp_path / "outcome.json"
    command = [sys.executable, "-m", "scripts.faults.outage", "--seconds", str(SECONDS), "--json", str(outcome)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(outcome.read_text())
    assert found["steps_meanwhile"] > SECONDS, found  # it trained on
    assert found["records"] == 2 * found["steps"] > 0
    assert found["lines"] > 0
    assert found["checkpoints"] > 1


def test_a_missing_record_and_one_too_many_are_told() -> None:
    expected = Counter({1: 1, 2: 1, 3: 1})
    assert unequal("records", Counter({1: 1, 2: 1, 3: 1}), expected) == []
    assert unequal("records", Counter({1: 1, 3: 2}), expected) == ["records: 1 missing, such as 2", "records: 1 too many, such as 3"]
