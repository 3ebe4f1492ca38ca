"""A script that prints so many MB a second for so many seconds."""

import os
import sys
import time

BLOCK = (b"x" * 99 + b"\n") * 10_000

seconds, rate = float(sys.argv[1]), 1e6 * float(sys.argv[2])
began, written = time.monotonic(), 0
while (elapsed := time.monotonic() - began) < seconds:
    written += os.write(1, BLOCK)
    time.sleep(max(0.0, written / rate - elapsed))
