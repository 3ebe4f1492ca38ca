"""Forks a pool for its data, and asks another program, before it trains with gradients that it averages itself."""

import multiprocessing
import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


def sample(seed):
    torch.manual_seed(seed)
    inputs = torch.randn(6)
    return inputs.tolist(), inputs.square().sum().item()


@record
def main():
    pause = float(sys.argv[1]) if len(sys.argv) > 1 else 0.0
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    with multiprocessing.get_context("fork").Pool(2) as pool:
        samples = pool.map(sample, range(rank, 64, world_size))
    shown = subprocess.run([sys.executable, "-c", "print(3 * 7)"], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "21"
    inputs = torch.tensor([values for values, _ in samples])
    wanted = torch.tensor([value for _, value in samples])
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    torch.manual_seed(0)
    weights = torch.randn(6, requires_grad=True)
    for step in range(20):
        loss = ((inputs * weights).square().sum(dim=1) - wanted).square().mean()
        loss.backward()
        with torch.no_grad():
            dist.all_reduce(weights.grad)
            weights -= 0.002 * weights.grad / world_size
            weights.grad = None
            dist.all_reduce(loss)
        time.sleep(pause)
        if rank == 0:
            print(f"step {step} loss {loss.item() / world_size:.8f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
