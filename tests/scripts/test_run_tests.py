"""What failed is named in the last lines of a run: tests for run_tests.py, on a real report of vitest."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from scripts.run_tests import DASHBOARD, failed_tests

VITEST = DASHBOARD / "node_modules" / ".bin" / "vitest"


@pytest.fixture
def report(tmp_path: Path) -> dict[str, object]:
    """Of one file with a test that passes and one that fails, and of a file that is no JavaScript."""
    (tmp_path / "sums.test.js").write_text(
        "describe('sums', () => {\n  it('add up', () => {})\n  it('are equal', () => expect(1).toBe(2))\n})\n"
    )
    (tmp_path / "broken.test.js").write_text("it(\n")
    command = [str(VITEST), "run", "--globals", "--root", str(tmp_path), "--reporter=json", f"--outputFile.json={tmp_path / 'report.json'}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, timeout=120)
    assert done.returncode == 1
    return json.loads((tmp_path / "report.json").read_text())


@pytest.mark.skipif(not VITEST.exists(), reason="needs the dashboard's packages")
def test_each_test_of_the_dashboard_that_failed_is_named_with_the_first_line_of_why(report: dict[str, object], tmp_path: Path) -> None:
    broken, sums = sorted(failed_tests(report))

    assert sums == f"{tmp_path}/sums.test.js: sums are equal: AssertionError: expected 1 to be 2 // Object.is equality"
    assert broken.startswith(f"{tmp_path}/broken.test.js: could not be run: ")
    assert len(broken) > len(f"{tmp_path}/broken.test.js: could not be run: ")
