"""How much data each rank sees: the same on all ranks, and after a pause what it was before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from paceline.distributed.errors import GenerationOverError
from paceline.training.data.sizes import require_as_saved, require_same_on_all, sizes_of
from paceline.training.errors import InvalidInputError
from paceline.training.link import Broken, Joined, Parked, Progress
from paceline.training.saving import manifest as manifests
from paceline.training.task import Batch, Task
from tests.training.conftest import MakeJob

SOURCE = """
import os, pathlib
import torch
from paceline.training.task import Task

class Files:
    '''As many samples as the file `count` says, and one more for each rank where there is a file `unequal`.'''
    def __init__(self, folder):
        rank = int(os.environ["PACELINE_RANK_FOLDER"][-1]) if (folder / "unequal").exists() else 0
        self.samples = int((folder / "count").read_text()) + rank

    def __len__(self):
        return self.samples

    def batch(self, indices, generator):
        return (torch.randn(len(indices), 4),)

def make(spec):
    loss = lambda model, batch: (model(batch[0]).square().mean(), {})
    return Task(model=torch.nn.Linear(4, 1), train=Files(pathlib.Path(__file__).parent), loss=loss)
"""


class Numbers:
    def __init__(self, samples: int) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return self._samples

    def batch(self, indices: Tensor, generator: torch.Generator | None) -> Batch:
        return (indices,)


class Shards:
    shards = 12

    def samples(self, shard: int) -> int | None:
        return None

    def read(self, shard: int, start: int) -> list[int]:
        return []

    def batch(self, samples: Any, generator: torch.Generator) -> Batch:
        return (torch.tensor(samples),)


def test_sizes_are_told_in_words() -> None:
    assert (
        sizes_of(Task(nn.Linear(1, 1), Numbers(60), lambda *_: (torch.zeros(()), {}), evaluation=Numbers(9)))
        == "60 samples, 9 to evaluate with"
    )
    assert sizes_of(Task(nn.Linear(1, 1), Shards(), lambda *_: (torch.zeros(()), {}))) == "12 shards"


def test_where_all_ranks_are_new_every_one_refuses_other_data() -> None:
    require_same_on_all(["8 samples"] * 3, [0, 0, 0], 1)
    for rank in range(3):
        with pytest.raises(InvalidInputError, match="rank 1 has 9 samples, and rank 0 has 8 samples: all ranks must see the same data"):
            require_same_on_all(["8 samples", "9 samples", "8 samples"], [0, 0, 0], rank)


def test_a_rank_that_joins_with_other_data_ends_alone() -> None:
    for rank in (1, 2):
        with pytest.raises(GenerationOverError, match="rank 0, which was to join, has other data: 9 samples"):
            require_same_on_all(["9 samples", "8 samples", "8 samples"], [0, 2, 2], rank)
    with pytest.raises(InvalidInputError, match="rank 0 has 9 samples, and rank 1 has 8 samples"):
        require_same_on_all(["9 samples", "8 samples", "8 samples"], [0, 2, 2], 0)


def test_a_checkpoint_without_a_size_fits_any_data() -> None:
    require_as_saved(None, Numbers(8), 3)
    require_as_saved("8 samples", Numbers(8), 3)
    with pytest.raises(InvalidInputError, match="have 9 samples, and had 8 samples when step 3 was saved"):
        require_as_saved("8 samples", Numbers(9), 3)


def job_on(folder: Path, count: int, steps: int = 8) -> dict[str, Any]:
    (folder / "my_files.py").write_text(SOURCE)
    (folder / "count").write_text(str(count))
    return {
        "name": "mine",
        "entrypoint": "my_files:make",
        "environment": {"working_directory": str(folder)},
        "training": {"steps": steps, "global_batch_size": 4, "micro_batch_size": 2, "eval_every_steps": None, "pause_at_steps": [3]},
        "checkpoint": {"every_steps": None},
    }


def test_a_job_that_goes_on_with_more_samples_is_refused(make_job: MakeJob, tmp_path: Path) -> None:
    """It went on in the order of another length, and the audit said that each sample was used exactly once."""
    job = make_job(job_on(tmp_path, 100))
    job.run()
    (tmp_path / "count").write_text("110")
    (end,) = job.resume()
    assert end.result is not None
    assert end.result.failure is not None
    assert (end.result.failure.kind, end.curve("loss")) == ("invalid_input", {})
    assert "the data have 110 samples, and had 100 samples when step 3 was saved" in end.result.failure.message
    assert manifests.read(Path(job.newest_first()[0])).data == "100 samples"
    (tmp_path / "count").write_text("100")
    (end,) = job.resume()
    assert end.result is not None
    assert end.result.outcome == "completed"


def test_ranks_with_other_samples_than_the_first_are_refused(make_job: MakeJob, tmp_path: Path) -> None:
    spec = job_on(tmp_path, 100) | {"resources": {"nodes": 2}}
    (tmp_path / "unequal").touch()
    for end in make_job(spec).run(2):
        assert end.result is not None
        assert end.result.failure is not None
        assert end.result.failure.kind == "invalid_input"
        assert "rank 1 has 101 samples, and rank 0 has 100 samples" in end.result.failure.message


def test_the_ranks_that_train_go_on_without_one_that_joins_with_other_samples(make_job: MakeJob, tmp_path: Path) -> None:
    spec = job_on(tmp_path, 100, steps=1_000_000)
    spec["training"]["pause_at_steps"] = None
    gang = make_job(spec).start(1)
    gang.agent.until(1, 0, Joined)
    (tmp_path / "count").write_text("110")
    new = gang.park()
    gang.until(new, Parked)
    gang.resize(0, new)
    assert "rank 1, which was to join, has other data: 110 samples" in gang.agent.until(2, 0, Broken).failure.message
    gang.close_up(0)
    gang.agent.until(3, 0, Progress)
    gang.processes[new].join(gang.job.patience)
    failure = gang.left(2, 1).result.failure if gang.left(2, 1).result else None  # type: ignore[union-attr]
    assert failure is not None
    assert failure.kind == "invalid_input"
