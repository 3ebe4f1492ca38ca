"""What is copied to be written behind steps."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from distributed.abort import Fence
from distributed.process_group import join
from parallelism import mesh
from parallelism.apply import parallelize
from parallelism.planning.shape import CPU
from tests.ranks import run_ranks
from tests.training.specs import tiny_gpt
from training.build import choices_of
from training.link import World
from training.planning.estimates import memory_of
from training.saving import writers
from training.saving.draft import draft
from training.saving.vault import Vault
from training.saving.writers import Behind
from training.spec.job import JobSpec
from training.state import follow_model, new_state

TIMEOUT_SECONDS = 60.0


def test_copies_are_what_was_there_and_used_again() -> None:
    behind, tensor = Behind(1, print), torch.arange(6.0).reshape(2, 3)
    first = behind.take({"a": tensor, "b": b"bytes"})
    tensor.zero_()
    assert torch.equal(first["a"], torch.arange(6.0).reshape(2, 3))
    assert first["b"] == b"bytes"
    assert behind.take({"a": tensor})["a"].data_ptr() == first["a"].data_ptr()
    assert behind.submit(lambda: 7).result(TIMEOUT_SECONDS) == 7
    behind.close()


@pytest.mark.parametrize("more", [2, 40])
def test_who_writes_is_nicer_than_who_trains_however_nice_that_is(more: int) -> None:
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, 0)  # of the thread

    def of_both() -> tuple[int, int]:
        mine = os.nice(more)
        behind = Behind(1, print)
        behind.take({})
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
    behind = Behind(2, lines.append)
    assert behind.take({"a": tensor})["a"] is tensor
    assert behind.submit(lambda: 7).done()
    assert "would take 8 MB of this machine's memory, of which 8 MB are available" in lines[0]
    assert Behind(1, lines.append).take({"a": tensor})["a"] is not tensor
    assert len(lines) == 1


def copied(world: World, document: dict[str, Any], folder: str) -> int:
    """Bytes of this rank's copies."""
    spec = JobSpec.model_validate(document)
    sizes = spec.parallelism.degrees(world.world_size)
    state, group = new_state(spec, torch.device("cpu"), Path(folder)), join(world, Fence(), mesh.lines(sizes))
    parallelize(state.task.model, sizes, state.device, group, reproducible=False, choices=choices_of(spec))
    follow_model(state, spec)
    copies: list[torch.Tensor] = []
    with_copies = Behind(world.world_size, print)

    def take(values: writers.Values) -> writers.Values:
        taken = with_copies.take(values)
        copies.extend(value for value in taken.values() if isinstance(value, torch.Tensor))
        return taken

    draft(Vault(Path(folder), "job", 1, spec, group), state, {}, take)
    return sum(each.nbytes for each in copies)


@pytest.mark.parametrize(("strategy", "world_size"), [("ddp", 1), ("ddp", 2), ("fsdp", 2)])
def test_copies_take_what_the_estimate_says(tmp_path: Path, strategy: str, world_size: int) -> None:
    model = {"kind": "gpt", "layers": 2, "heads": 2, "dim": 64, "context": 16}
    document = tiny_gpt(world_size) | {"model": model, "parallelism": {"strategy": strategy}, "reproducible": False}
    estimate = memory_of(JobSpec.model_validate(document), CPU)
    assert estimate is not None
    assert sum(run_ranks(copied, world_size, document, str(tmp_path))) == pytest.approx(world_size * estimate.save_copies, rel=0.05)
