"""Stacks of two ranks as py-spy printed them of real scripts on gloo, in `recorded_stacks/`.

loop      rank 1 loops forever, rank 0 is in all_reduce        input     rank 1 reads a pipe, rank 0 is in the backward of DDP
order     all_reduce and broadcast at different lines          data      rank 1 waits for a worker of its data loader
branch    backward and barrier                                 launcher  torchrun itself
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from paceline.cluster.agent.stacks import parse
from paceline.cluster.stacks import ProcessStack, StackSample

FOLDER = Path(__file__).parent / "recorded_stacks"


def recorded(case: str, *, cores: float | None = None) -> dict[int, StackSample | None]:
    """By rank."""
    documents = msgspec.json.decode((FOLDER / f"{case}.json").read_bytes())
    return {rank: _stacks(document, cores) for rank, document in enumerate(documents)}


def _stacks(document: list[dict[str, object]], cores: float | None) -> StackSample:
    pid = int(str(document[0]["pid"]))
    threads = parse(msgspec.json.encode(document), pid)
    return StackSample(id="r", cores=cores, processes=(ProcessStack(pid, "python train.py", threads),))
