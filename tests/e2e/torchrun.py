"""Programs as people have them, and what they print under torchrun."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PROGRAMS = Path(__file__).parent / "user_code" / "programs"
TORCHRUN_SECONDS = 90


def losses(text: str) -> dict[int, str]:
    """What was printed of each step, as it was printed; of a step that was done again, the last."""
    return {int(step): rest for step, rest in re.findall(r"^step (\d+) (loss .*)$", text, re.MULTILINE)}


def under_torchrun(program: Path, folder: Path, *arguments: str) -> dict[int, str]:
    folder.mkdir()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(program), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TORCHRUN_SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return losses(done.stdout)
