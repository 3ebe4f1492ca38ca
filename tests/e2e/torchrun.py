"""Programs as people have them, and what they print under torchrun."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "user_code" / "programs"
TORCHRUN_SECONDS = 90
#: torchrun gives its ranks half a minute between SIGTERM and SIGKILL.
END_SECONDS = 40


#: One loss, or those of two networks.
_STEP = re.compile(r"step (\d+) (loss [-+.\de]+(?: critic [-+.\de]+)?|loss (?:nan|inf))")


def losses(text: str) -> dict[int, str]:
    """What was printed of each step, as it was printed; of a step that was done again, the last. Torchrun's ranks share a pipe: the line of another one may
    stand in front of the end of a line, or behind its last number."""
    return {int(step): losses for step, losses in _STEP.findall(text)}


def is_as_printed(value: float, printed: str) -> bool:
    """Whether `value`, rounded to the digits of the number that was printed, is that number."""
    return Decimal(value).quantize(Decimal(printed)) == Decimal(printed)


def under_torchrun(program: Path, folder: Path, *arguments: str) -> dict[int, str]:
    folder.mkdir()
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(program), *arguments]
    done = run_within(TORCHRUN_SECONDS, command, cwd=folder)
    assert done.returncode == 0, done.stderr
    return losses(done.stdout)


def run_within(seconds: float, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run torchrun to its end. Raises subprocess.TimeoutExpired for one that takes longer, which is told to end: killed, it would leave its ranks."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options) as process:
        try:
            out, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.terminate()
            try:
                process.communicate(timeout=END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, errors)
