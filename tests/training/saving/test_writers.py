"""What is copied to be written behind steps."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from paceline.distributed import env
from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.parallelism import mesh
from paceline.parallelism.apply import parallelize
from paceline.parallelism.model_shape import CPU
from paceline.training.build import choices_of
from paceline.training.link import RankPlace
from paceline.training.planning.estimates import memory_of
from paceline.training.saving import writers
from paceline.training.saving.checkpoint_directory import CheckpointDirectory
from paceline.training.saving.storage import FolderStorage
from paceline.training.saving.uncommitted import snapshot_state
from paceline.training.saving.writers import BackgroundWriter
from paceline.training.spec.job import JobSpec
from paceline.training.state import new_state, rebuild_optimizer
from tests.ranks import run_ranks
from tests.training.specs import tiny_gpt

TIMEOUT_SECONDS = 60.0


def test_copies_are_what_was_there_and_used_again() -> None:
    behind, tensor = BackgroundWriter(1, print), torch.arange(6.0).reshape(2, 3)
    first = behind.snapshot({"a": tensor, "b": b"bytes"})
    tensor.zero_()
    assert torch.equal(first["a"], torch.arange(6.0).reshape(2, 3))
    assert first["b"] == b"bytes"
    assert behind.snapshot({"a": tensor})["a"].data_ptr() == first["a"].data_ptr()
    assert behind.submit(lambda: 7).result(TIMEOUT_SECONDS) == 7
    behind.close()


@pytest.mark.parametrize("more", [2, 40])
def test_who_writes_is_nicer_than_who_trains_however_nice_that_is(more: int) -> None:
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, 0)  # of the thread

    def of_both() -> tuple[int, int]:
        mine = os.nice(more)
        behind = BackgroundWriter(1, print)
        behind.snapshot({})
        try:
            return mine, behind.submit(niceness).result(TIMEOUT_SECONDS)
        finally:
            behind.close()

    with ThreadPoolExecutor(1) as rank:
        trains, writes = rank.submit(of_both).result(TIMEOUT_SECONDS)
    assert writes == min(writers.NICEST, trains + writers.NICER)


def test_without_room_for_copies_training_waits_and_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "available_memory_bytes", lambda: 2 * 4_000_000)
    lines: list[str] = []
    tensor = torch.zeros(1_000_000)
    behind = BackgroundWriter(2, lines.append)
    assert behind.snapshot({"a": tensor})["a"] is tensor
    assert behind.submit(lambda: 7).done()
    assert "would take 8 MB of this machine's memory, of which 8 MB are available" in lines[0]
    assert BackgroundWriter(1, lines.append).snapshot({"a": tensor})["a"] is not tensor
    assert len(lines) == 1


def copied(world: RankPlace, document: dict[str, Any], folder: str) -> int:
    """Bytes of this rank's copies."""
    spec = JobSpec.model_validate(document)
    sizes = spec.parallelism.degrees(world.world_size)
    state, group = new_state(spec, torch.device("cpu"), env.cache_directory()), join(world, GroupAborter(), mesh.axis_group_ranks(sizes))
    parallelize(state.task.model, sizes, state.device, group, reproducible=False, choices=choices_of(spec))
    rebuild_optimizer(state, spec)
    copies: list[torch.Tensor] = []
    with_copies = BackgroundWriter(world.world_size, print)

    def snapshot(values: writers.Values) -> writers.Values:
        snapshots = with_copies.snapshot(values)
        copies.extend(value for value in snapshots.values() if isinstance(value, torch.Tensor))
        return snapshots

    snapshot_state(CheckpointDirectory(FolderStorage(Path(folder)), "job", 1, spec, group), state, {}, snapshot)
    return sum(each.nbytes for each in copies)


@pytest.mark.parametrize(("strategy", "world_size"), [("ddp", 1), ("ddp", 2), ("fsdp", 2)])
def test_copies_take_what_the_estimate_says(tmp_path: Path, strategy: str, world_size: int) -> None:
    model = {"kind": "gpt", "layers": 2, "heads": 2, "dim": 64, "context": 16}
    document = tiny_gpt(world_size) | {"model": model, "parallelism": {"strategy": strategy}, "reproducible": False}
    estimate = memory_of(JobSpec.model_validate(document), CPU)
    assert estimate is not None
    assert sum(run_ranks(copied, world_size, document, str(tmp_path))) == pytest.approx(world_size * estimate.save_copies, rel=0.05)
