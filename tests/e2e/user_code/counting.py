"""A script whose every line is known beforehand: numbers, as many as it is told, so often a second."""

import sys
import time

count, per_second = int(sys.argv[1]), float(sys.argv[2])
for number in range(count):
    print(f"line {number:05d}", flush=True)
    time.sleep(1 / per_second)
