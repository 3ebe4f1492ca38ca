"""One replica of torchft's fault tolerant DDP over gloo, as in its example `train_ddp.py`. Runs in an environment that has torchft."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import torch
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo  # type: ignore[import-not-found]

from scripts.bench.peers.workload import MEMBER, Diary, Workload

COLLECTIVE_TIMEOUT = timedelta(seconds=5)
TIMEOUT = timedelta(seconds=30)
REPLICAS = 3


def main() -> None:
    work, diary = Workload(), Diary()
    inner = torch.optim.AdamW(work.model.parameters(), lr=3e-4, fused=True)

    def state_dict() -> dict[str, Any]:
        return {"model": work.model.state_dict(), "optimizer": inner.state_dict()}

    def load_state_dict(state: dict[str, Any]) -> None:
        work.model.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])

    member = os.environ[MEMBER]
    manager = Manager(
        pg=ProcessGroupGloo(timeout=COLLECTIVE_TIMEOUT),
        min_replica_size=1,
        load_state_dict=load_state_dict,
        state_dict=state_dict,
        replica_id=member,
        timeout=TIMEOUT,
    )
    model, optimizer = DistributedDataParallel(manager, work.model), Optimizer(manager, inner)
    own = int(member.rpartition("-")[2])
    while True:
        before = manager.current_step()
        optimizer.zero_grad()
        loss = work.loss(model, before, own, REPLICAS)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        rank = manager.participating_rank()
        if manager.current_step() > before and rank is not None:  # else thrown away, or healing
            diary.write(manager._quorum_id, rank, manager.current_step())


if __name__ == "__main__":
    main()
