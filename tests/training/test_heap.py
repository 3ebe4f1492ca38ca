from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from paceline.location import ROOT

#: Three blocks of 5 MiB that are freed together: more than glibc keeps at the end of the heap once it has seen such blocks.
STEPS = """
import resource, sys
from paceline.training.heap import keep_freed_blocks
if sys.argv[1] == "kept":
    keep_freed_blocks()
def step():
    blocks = [bytearray(b"x") * (5 << 20) for _ in range(3)]
for _ in range(3):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(how: str, **variables: str) -> int:
    environment = {"PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run([sys.executable, "-c", STEPS, how], env=environment, check=True, capture_output=True, text=True)
    return int(done.stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="this C library has no mallopt")
def test_steps_fault_no_memory_in_that_the_step_before_has_freed() -> None:
    faulted = page_faults("as glibc does")
    assert faulted > 20 * 1000
    assert page_faults("kept") < faulted / 100
    assert page_faults("kept", MALLOC_TRIM_THRESHOLD_="131072") > faulted / 2  # what the user says is heeded
