"""DistributedDataParallel with torch's SummaryWriter: nothing in here knows of its launcher."""

import sys

import torch
import torch.distributed as dist
from torch.utils.tensorboard import SummaryWriter

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
writer = SummaryWriter("runs") if dist.get_rank() == 0 else None
for step in range(1, int(sys.argv[1]) + 1):
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if writer is not None:
        writer.add_scalar("Loss/train", loss.item(), step)
        writer.add_histogram("weights", model.module.weight, step)
        print(f"step {step} loss {loss.item():.6g}", flush=True)
if writer is not None:
    writer.close()
dist.destroy_process_group()
