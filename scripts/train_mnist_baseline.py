"""The baseline of distributed runs: a perceptron on MNIST, in one process, the same numbers every time.

    python scripts/train_mnist_baseline.py --epochs 3

It is `scripts/production_train.py` with its model, data and strategy, and takes the options of that. --data-dir names a folder with MNIST's four files;
without it they are fetched once.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

BASELINE = ("--model", "mlp-small", "--data", "mnist", "--strategy", "single")


def main() -> None:
    sys.argv[1:1] = BASELINE
    runpy.run_path(str(Path(__file__).with_name("production_train.py")), run_name="__main__")


if __name__ == "__main__":
    main()
