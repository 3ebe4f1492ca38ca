"""fully_shard with distributed checkpoints: each rank saves its shards, and the newest complete folder is loaded."""

import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

STEPS, EVERY = 24, 6
FOLDER = pathlib.Path("shards")


class Block(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def newest():
    found = sorted((int(path.name), path) for path in FOLDER.glob("[0-9]*") if (path / ".metadata").exists())
    return found[-1] if found else (0, None)


def main():
    pause = float(sys.argv[1]) if len(sys.argv) > 1 else 0.0
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(1)
    model = nn.Sequential(Block(16), Block(16), nn.Linear(16, 1))
    for block in model:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    first, folder = newest()
    if folder is not None:
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": moments}
        dcp.load(state, checkpoint_id=folder)
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    for step in range(first, STEPS):
        torch.manual_seed(1000 * step + dist.get_rank())
        inputs = torch.randn(8, 16)
        loss = (model(inputs) - inputs.prod(dim=1, keepdim=True)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total = loss.detach().clone()
        dist.all_reduce(total)
        time.sleep(pause)
        if dist.get_rank() == 0:
            print(f"step {step} loss {total.item() / dist.get_world_size():.8f}", flush=True)
        if (step + 1) % EVERY == 0:
            weights, moments = get_state_dict(model, optimizer)
            dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=FOLDER / str(step + 1))
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
