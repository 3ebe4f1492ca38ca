from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.location import ROOT

#: Three blocks of 5 MiB that are freed together: more than glibc keeps at the end of the heap once it has seen such blocks.
STEPS = """
import resource, sys
from paceline.distributed.heap import keep_freed_blocks
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


#: Eight threads that allocate at once; then the heaps that glibc tells of.
HEAPS = """
import ctypes, sys, threading
from paceline.distributed.heap import share_arenas
if sys.argv[1] == "shared":
    share_arenas()
barrier = threading.Barrier(8)
def allocate():
    barrier.wait()
    blocks = [bytes(700) for _ in range(10_000)]
    barrier.wait()
threads = [threading.Thread(target=allocate) for _ in range(8)]
for each in threads:
    each.start()
for each in threads:
    each.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(sys.argv[2].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="this C library has no mallopt")
def test_steps_fault_no_memory_in_that_the_step_before_has_freed() -> None:
    faulted = page_faults("as glibc does")
    assert faulted > 20 * 1000
    assert page_faults("kept") < faulted / 100
    assert page_faults("kept", MALLOC_TRIM_THRESHOLD_="131072") > faulted / 2  # what the user says is heeded


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="this C library does not tell of its heaps")
def test_threads_share_a_heap(tmp_path: Path) -> None:
    def heaps(how: str, **variables: str) -> int:
        told = tmp_path / how
        environment = {"PYTHONPATH": str(ROOT), **variables}
        subprocess.run([sys.executable, "-c", HEAPS, how, str(told)], env=environment, check=True, capture_output=True)
        return told.read_text().count("<heap nr=")

    assert heaps("as glibc does") > 2
    assert heaps("shared") == 2
    assert heaps("shared", MALLOC_ARENA_MAX="6") > 2  # what the user says is heeded
