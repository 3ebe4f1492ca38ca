"""What works on this machine's NVIDIA GPUs, row by row: groups and their abort, every strategy, precisions, telemetry, memory, speed.

Needs the repository and a Python with a CUDA build of torch and the few packages of PACKAGES; no network. A row that needs more GPUs than there
are is skipped and says so; each has a time limit and processes of its own. `--device cpu` runs the code of the rows on two CPU ranks.

    scripts/gpu_check.sh [--quick] [--device cpu] [--only ROW ...] [--json FILE]

Exit code: 0 no row failed; 1 some did; 2 usage; 3 nothing could be checked (no GPU, no CUDA build, a package is missing), and the last line says why.
"""

from __future__ import annotations

import sys

from scripts.gpu_check.machine import CannotCheckError, require_packages

NOTHING_CHECKED = 3


def main() -> int:
    try:
        require_packages()
        from scripts.gpu_check.command import check  # whose imports need them

        return check(__doc__)
    except CannotCheckError as reason:
        print(f"nothing was checked: {reason}", file=sys.stderr)
        return NOTHING_CHECKED


if __name__ == "__main__":
    sys.exit(main())
