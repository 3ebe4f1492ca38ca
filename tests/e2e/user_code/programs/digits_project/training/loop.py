import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def fit(model, steps, pause):
    rank = dist.get_rank()
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    generator = torch.Generator().manual_seed(rank)
    for step in range(steps):
        labels = torch.randint(10, (32,), generator=generator)
        images = torch.randn(32, 1, 8, 8, generator=generator) + labels.view(-1, 1, 1, 1) / 5
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        time.sleep(pause)
        if rank == 0:
            print(f"step {step} loss {loss.item():.8f}", flush=True)
