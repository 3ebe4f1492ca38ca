"""A task on a stream of eight shards, so that a step can have eight micro-batches at most."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import nn

from paceline.training.spec.job import JobSpec
from paceline.training.task import Batch, Task
from tests.user_code.hungry_task import FEATURES
from tests.user_code.normed_task import loss


class EightShards:
    shards = 8

    def samples(self, shard: int) -> int | None:
        return 32

    def read(self, shard: int, start: int) -> Iterable[int]:
        return range(start, 32)

    def batch(self, samples: Sequence[int], generator: torch.Generator) -> Batch:
        return (torch.tensor(samples, dtype=torch.float32)[:, None].expand(-1, FEATURES) / 32,)


def task(spec: JobSpec) -> Task:
    return Task(nn.Linear(FEATURES, 1), EightShards(), loss)
