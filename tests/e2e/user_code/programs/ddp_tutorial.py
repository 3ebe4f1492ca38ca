"""DistributedDataParallel as its tutorial has it: a sampler per rank, rank 0 saves, everybody loads."""

import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--save", default="snapshot.pt")
    parser.add_argument("--pause", type=float, default=0.0)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    inputs = torch.randn(256, 20)
    data = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True).sin())
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    model = DDP(nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)

    first = 0
    if os.path.exists(args.save):
        snapshot = torch.load(args.save)
        model.module.load_state_dict(snapshot["model"])
        optimizer.load_state_dict(snapshot["optimizer"])
        first = snapshot["epoch"] + 1

    for epoch in range(first, args.epochs):
        sampler.set_epoch(epoch)
        for number, (batch, wanted) in enumerate(loader):
            loss = nn.functional.mse_loss(model(batch), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(args.pause)
            if dist.get_rank() == 0:
                print(f"step {epoch * len(loader) + number} loss {loss.item():.8f}", flush=True)
        if dist.get_rank() == 0:
            state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            torch.save(state, args.save + ".new")
            os.replace(args.save + ".new", args.save)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
