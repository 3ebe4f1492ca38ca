"""What a worker process that analyzes an experiment imports before it begins: the first analysis waits for it."""

from __future__ import annotations

import subprocess
import sys

#: None of them is needed to analyze an experiment; together they take longer to import than the analysis of a small one.
NOT_NEEDED = ("fastapi", "matplotlib", "opentelemetry", "torch")
PROGRAM = f"""
import sys
import paceline.api.services.history.history_process
import paceline.api.services.experiments.analysis_process
print(sorted(set(sys.modules) & set({NOT_NEEDED!r})))
"""


def test_a_worker_that_analyzes_imports_no_web_framework_and_nothing_that_draws() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
