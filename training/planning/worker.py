"""One calculation in a process of its own: `python -m paceline.training.planning.worker` reads it from its input, writes the result, and ends.

Whatever a spec asks for, the caller goes on: it kills this process when its time is over, and memory is limited here. Both ends are the same
program on the same machine, so they speak pickle.
"""

from __future__ import annotations

import pickle
import resource
import sys

MEMORY_BYTES = 2 << 30


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    work, arguments = pickle.load(sys.stdin.buffer)
    try:
        answer = (True, work(*arguments))
    except (ValueError, MemoryError) as error:
        answer = (False, error if isinstance(error, ValueError) else ValueError(f"over {MEMORY_BYTES >> 30} GiB of memory would be needed"))
    pickle.dump(answer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
