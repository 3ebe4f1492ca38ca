"""A loop of one's own with torch's SummaryWriter: nothing in here knows of Paceline."""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.utils.tensorboard import SummaryWriter

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
writer = SummaryWriter(sys.argv[1]) if dist.get_rank() == 0 else None
for step in range(1, int(sys.argv[2]) + 1):
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if writer is not None:
        writer.add_scalar("Loss/train", float(os.environ.get("LOSS", loss.item())), step)
        writer.add_histogram("weights", model.module.weight, step)
    time.sleep(float(os.environ.get("STEP_SECONDS", "0")))
if writer is not None:
    writer.close()
dist.destroy_process_group()
