"""Prints as many numbered lines as its argument says, after a progress bar."""

import sys

for percent in range(0, 101, 10):
    sys.stderr.write(f"\r{percent:3d}%")
sys.stderr.write("\n")
sys.stderr.flush()
for number in range(1, int(sys.argv[1]) + 1):
    print(f"number {number}")
