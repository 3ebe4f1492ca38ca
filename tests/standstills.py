"""How long this machine has stood still: a bound in seconds cannot tell that from something that is slow."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: What is shorter is how any busy machine shares itself out, and no reason to wait longer.
LEAST_SECONDS = 0.5
TIMEOUT_SECONDS = 60.0
#: A process that wants nothing but to be run, and notes the longest time for which it was not.
NOTES = """
import select, sys, time
longest, last = 0.0, time.monotonic()
while not select.select([sys.stdin], [], [], 0.05)[0]:
    now = time.monotonic()
    longest, last = max(longest, now - last - 0.05), now
print(longest)
"""


@contextmanager
def standstills() -> Iterator[Callable[[], float]]:
    """A context that gives a function: it ends the noting, and returns the seconds of the longest standstill; 0 where there was none."""
    with subprocess.Popen([sys.executable, "-IS", "-c", NOTES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def longest() -> float:
            seconds = float(process.communicate(timeout=TIMEOUT_SECONDS)[0])
            return seconds if seconds >= LEAST_SECONDS else 0.0

        try:
            yield longest
        finally:
            process.kill()
