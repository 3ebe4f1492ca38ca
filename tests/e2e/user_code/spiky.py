"""Report so many steps in seconds, one of which is not like the others: spiky.py STEPS SPIKE."""

from __future__ import annotations

import sys

import paceline

steps, spike = map(int, sys.argv[1:])
for step in range(1, steps + 1):
    paceline.log(step, loss=10_000.0 if step == spike else 1.0, samples_per_second=10_000.0 if step % 2 else 100.0)
