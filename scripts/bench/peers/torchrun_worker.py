"""What torchrun starts: DDP with a snapshot every few steps, as its documentation advises for elastic jobs. Trains until it is killed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from scripts.bench.peers.workload import FOLDER, Diary, Workload

SNAPSHOT_STEPS = 10


def main() -> None:
    dist.init_process_group("gloo")
    work, diary = Workload(), Diary()
    optimizer = torch.optim.AdamW(work.model.parameters(), lr=3e-4, fused=True)
    snapshot = Path(os.environ[FOLDER]) / "snapshot.pt"
    step = load(snapshot, work, optimizer)
    model = DistributedDataParallel(work.model)
    generation = agreed_now()
    while True:
        loss = work.loss(model, step, dist.get_rank(), dist.get_world_size())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        step += 1
        diary.write(generation, dist.get_rank(), step)
        if step % SNAPSHOT_STEPS == 0 and dist.get_rank() == 0:
            save(snapshot, work, optimizer, step)


def agreed_now() -> int:
    """Rank 0's clock: torchrun's own counters do not grow with every new membership."""
    now = torch.tensor([time.time_ns() // 1_000_000])
    dist.broadcast(now, 0)
    return int(now.item())


def load(snapshot: Path, work: Workload, optimizer: torch.optim.Optimizer) -> int:
    if not snapshot.exists():
        return 0
    state = torch.load(snapshot)
    work.model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


def save(snapshot: Path, work: Workload, optimizer: torch.optim.Optimizer, step: int) -> None:
    temporary = snapshot.with_suffix(f".{os.getpid()}")
    torch.save({"model": work.model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, temporary)
    temporary.rename(snapshot)


if __name__ == "__main__":
    main()
