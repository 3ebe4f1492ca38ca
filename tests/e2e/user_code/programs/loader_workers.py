"""A DataLoader with worker processes and a temporary folder of its own on each rank."""

import os
import sys
import tempfile
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Files(Dataset):
    """Samples that lie in files, as pictures do."""

    def __init__(self, folder, count=96):
        self.folder, self.count = folder, count
        for index in range(count):
            np.save(os.path.join(folder, f"{index}.npy"), np.cos(np.arange(8, dtype=np.float32) * index))

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        values = torch.from_numpy(np.load(os.path.join(self.folder, f"{index}.npy")))
        return values, values.abs().max()


def main():
    pause = float(sys.argv[1]) if len(sys.argv) > 1 else 0.0
    dist.init_process_group("gloo")
    with tempfile.TemporaryDirectory() as folder:
        data = Files(folder)
        sampler = DistributedSampler(data, shuffle=True, seed=3)
        loader = DataLoader(data, batch_size=8, sampler=sampler, num_workers=2, persistent_workers=True)
        torch.manual_seed(5)
        model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        step = 0
        for epoch in range(4):
            sampler.set_epoch(epoch)
            for values, wanted in loader:
                loss = (model(values).squeeze(1) - wanted).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(pause)
                if dist.get_rank() == 0:
                    print(f"step {step} loss {loss.item():.8f}", flush=True)
                step += 1
        dist.barrier()
        del loader
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
