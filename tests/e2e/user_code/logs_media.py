"""Logs an image, a histogram and a table on each rank every 10 steps, slowly enough to be killed."""

import sys
import time

import numpy as np
import torch.distributed as dist

import paceline

dist.init_process_group("gloo")
rank, steps = dist.get_rank(), int(sys.argv[1])
for step in range(1, steps + 1):
    dist.barrier()
    time.sleep(0.05)
    if step % 10:
        paceline.log(step, loss=1 / step)
        continue
    paceline.log(
        step,
        loss=1 / step,
        samples=paceline.Image(np.full((8, 8), rank / 2), caption=f"rank {rank} at {step}"),
        weights=paceline.Histogram(np.arange(step) + rank),
        preds=paceline.Table(["n", "square"], [[n, n * n] for n in range(30)]),
    )
