"""A small seeded sample of `python -m scripts.torture`: whatever is done to checkpoints, the newest one that verifies is used."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.steps import ROOT
from scripts.torture.__main__ import TORTURES

TIMEOUT_SECONDS = 240.0
SAMPLE = {"kills", "damage"}

pytestmark = pytest.mark.timeout(TIMEOUT_SECONDS + 10)


@pytest.mark.slow("kills a job again and again while it saves")
@pytest.mark.parametrize("name", [name if name in SAMPLE else pytest.param(name, marks=pytest.mark.release) for name in TORTURES])
def test_nothing_unusable_is_ever_the_newest(name: str, tmp_path: Path) -> None:
    table = tmp_path / "table.json"
    command = [sys.executable, "-m", "scripts.torture", "--quick", "--json", str(table), name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(table.read_text())
    assert all(row["times"] > 0 for row in rows if not row["skipped"]), done.stdout
    if skipped := {row["skipped"] for row in rows if row["skipped"]}:
        pytest.skip("; ".join(sorted(skipped)))
