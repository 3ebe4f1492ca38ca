"""A project of several files, whose package `training` has the name of one of the launcher's."""

import logging
import sys

import torch.distributed as dist
from training.loop import fit
from training.model import make_model

logging.basicConfig(format="%(asctime)s - %(name)s - %(levelname)s - %(message)s", level=logging.INFO)


def main():
    pause = float(sys.argv[1]) if len(sys.argv) > 1 else 0.0
    dist.init_process_group()
    fit(make_model(), steps=20, pause=pause)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
