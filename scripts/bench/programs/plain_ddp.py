"""A plain DDP program, for `scripts.bench.scripts`: the same file under Paceline and under torchrun. Knows nothing of Paceline.

    plain_ddp.py STEPS [FAULT]

Rank 0 prints `first step at T` (seconds since the epoch) and `STEPS steps in S s`, of those after a fifth as many that are not counted: what a
launcher still does as a job begins is over then. With FAULT `killed`, rank 1 kills itself after five steps of the first attempt.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FAULT_AFTER = 5


def kill_itself() -> None:
    if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
        print(f"killed at {time.time()}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


def main(steps: int, fault: str) -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 512)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, leads = torch.randn(64, 512), dist.get_rank() == 0
    warm_up, began = steps // 5, time.monotonic()
    for step in range(warm_up + steps):
        optimizer.zero_grad()
        model(inputs).pow(2).mean().backward()
        optimizer.step()
        if step == 0 and leads:
            print(f"first step at {time.time()}", flush=True)
        if step == warm_up - 1:
            began = time.monotonic()
        if fault == "killed" and step == FAULT_AFTER and dist.get_rank() == 1:
            kill_itself()
    if leads:
        print(f"{steps} steps in {time.monotonic() - began} s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
