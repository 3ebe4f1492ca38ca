"""A loop of one's own with Lightning Fabric: it saves after each epoch, and goes on from there."""

import os
import sys
import time

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, CHECKPOINT = 3, "fabric.ckpt"


def main():
    pause = float(sys.argv[1]) if len(sys.argv) > 1 else 0.0
    local = int(os.environ["LOCAL_WORLD_SIZE"])
    fabric = L.Fabric(accelerator="cpu", devices=local, num_nodes=int(os.environ["WORLD_SIZE"]) // local, strategy="ddp")
    fabric.launch()
    fabric.seed_everything(0, verbose=False)
    inputs = torch.randn(256, 8)
    data = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True).sin()), batch_size=16)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    data = fabric.setup_dataloaders(data)
    state = {"model": model, "optimizer": optimizer, "epoch": 0}
    if os.path.exists(CHECKPOINT):
        fabric.load(CHECKPOINT, state)
    while state["epoch"] < EPOCHS:
        for number, (batch, targets) in enumerate(data):
            loss = nn.functional.mse_loss(model(batch), targets)
            fabric.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(pause)
            mean = fabric.all_reduce(loss.detach(), reduce_op="mean").item()
            if fabric.is_global_zero:
                print(f"step {state['epoch'] * len(data) + number} loss {mean:.8f}", flush=True)
        state["epoch"] += 1
        fabric.save(CHECKPOINT, state)
        fabric.barrier()


if __name__ == "__main__":
    main()
