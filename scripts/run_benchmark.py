"""Measure training on several numbers of GPUs, with several strategies and batch sizes: speed, scaling efficiency, step time, memory.

    python scripts/run_benchmark.py --gpus 1 2 4 8 --strategies ddp fsdp --batch-sizes 32 64 128

A thin face of an experiment (docs/experiments.md). It runs on the configured coordinator, or the one that --url names; where there is none, on one
of its own, on this machine, which ends with it. Where there are no GPUs, ranks run on CPU slots. Numbers of GPUs that are not there are rows with
the reason. The table is printed, and written with the report to the folder --output.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # last: in a checkout that is not installed

from scripts.comparisons.comparison import compare
from scripts.comparisons.coordinators import place
from scripts.comparisons.grids import Length, benchmark, job
from scripts.comparisons.options import add_shared_options, positive, run_main


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=positive, nargs="+", default=[1, 2], metavar="N", help="numbers of ranks, one a GPU; default: 1 2")
    parser.add_argument("--strategies", nargs="+", default=["ddp", "fsdp"], choices=["ddp", "fsdp", "auto"], help="default: ddp fsdp")
    parser.add_argument(
        "--batch-sizes", type=positive, nargs="+", default=[32], metavar="N", help="samples of each rank in a step; default: 32"
    )
    parser.add_argument(
        "--scaling", choices=["weak", "strong"], default="weak", help="strong: a batch size is that of all ranks together; default: weak"
    )
    parser.add_argument(
        "--model", choices=["resnet", "gpt"], default="resnet", help="default: resnet; ResNet-50 on GPUs, a small one on CPUs"
    )
    parser.add_argument("--precision", choices=["fp32", "bf16", "fp16"], help="default: fp32")
    add_shared_options(parser, name="benchmark", steps=20, repeats=2)
    options = parser.parse_args()
    length = Length(options.steps, options.repeats)
    with place(options.url, options.api_key) as here:
        base = job(options.model, length, on_gpus=here.on_gpus, precision=options.precision)
        grid = benchmark(
            options.name,
            base,
            length,
            gpus=options.gpus,
            strategies=options.strategies,
            batch_sizes=options.batch_sizes,
            scaling=options.scaling,
        )
        return compare(here, grid, options.output)


if __name__ == "__main__":
    sys.exit(run_main(main))
