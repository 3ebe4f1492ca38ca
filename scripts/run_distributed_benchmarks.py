"""Compare ways to distribute a language model with one process: speed, communication, memory, and whether it learns the same.

    python scripts/run_distributed_benchmarks.py

Replicas, shards, tensor parts and pipeline stages, each on every number of ranks, train on the same batches as a single process. A thin face of an
experiment (docs/experiments.md). It runs on the configured coordinator, or the one that --url names; where there is none, on one of its own, on
this machine, which ends with it. Where there are no GPUs, ranks run on CPU slots. The interpretation is printed, and written with its figures to
the folder --output.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # last: in a checkout that is not installed

from scripts.comparisons.comparison import compare
from scripts.comparisons.coordinators import place
from scripts.comparisons.grids import Length, distributed_suite, job
from scripts.comparisons.options import add_shared_options, positive, run_main


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world-sizes", type=positive, nargs="+", default=[2], metavar="N", help="numbers of ranks; default: 2")
    parser.add_argument("--batch-size", type=positive, default=16, metavar="N", help="samples of all ranks in a step; default: 16")
    add_shared_options(parser, name="distributed-benchmarks", steps=30, repeats=4)
    options = parser.parse_args()
    length = Length(options.steps, options.repeats)
    with place(options.url, options.api_key) as here:
        base = job("gpt", length, on_gpus=here.on_gpus)
        suite = distributed_suite(options.name, base, length, world_sizes=options.world_sizes, batch_size=options.batch_size)
        return compare(here, suite, options.output)


if __name__ == "__main__":
    sys.exit(run_main(main))
