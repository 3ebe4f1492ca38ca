"""What every system in the recovery benchmark trains: the same small GPT on the same text, and how a peer writes down its steps."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import BinaryIO

import msgspec
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paceline.distributed import env
from paceline.training.data import stdlib_text
from paceline.training.models.gpt import model as gpt
from paceline.training.models.gpt.config import GptModel
from paceline.training.schema.data import StdlibText
from scripts.faults.history import Commit
from scripts.faults.job import GLOBAL_BATCH, MODEL

#: Variables in which a peer's worker finds where to write, and its rank.
FOLDER, MEMBER = "BENCH_FOLDER", "BENCH_MEMBER"


class Workload:
    """The bare parts, seeded: the same on every worker."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        spec = GptModel.model_validate(MODEL)
        self.model: nn.Module = gpt.build(spec)
        self.windows, _ = stdlib_text.load(StdlibText(), spec.context, env.cache_directory())

    def loss(self, model: nn.Module, step: int, rank: int, world_size: int) -> Tensor:
        """Compute the loss of this rank's share of the step's batch."""
        mine = torch.arange(GLOBAL_BATCH)[rank::world_size] + step * GLOBAL_BATCH
        (tokens,) = self.windows.batch(mine % len(self.windows), None)
        return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


class Diary:
    """File with a line for each finished step, written at once: a killed process has recorded all its steps."""

    def __init__(self) -> None:
        self._member = os.environ[MEMBER]
        self._file: BinaryIO = (Path(os.environ[FOLDER]) / f"{self._member}.{os.getpid()}.jsonl").open("ab", buffering=0)
        self._before = time.time()

    def write(self, generation: int, rank: int, step: int) -> None:
        now = time.time()
        commit = Commit(self._member, generation, rank, step, now, now - self._before)
        self._before = now
        self._file.write(msgspec.json.encode(commit) + b"\n")
