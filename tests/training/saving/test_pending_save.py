"""A save of several ranks, behind steps: no rank waits for another, and all hear the same of it."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch

from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.distributed.process_group import Group
from paceline.training.errors import CheckpointSaveError
from paceline.training.link import RankPlace
from paceline.training.saving import checkpoint
from paceline.training.saving.checkpoint_directory import CheckpointDirectory, open_directory
from paceline.training.saving.manifest import CommittedCheckpoint
from paceline.training.saving.pending_save import PendingSave
from paceline.training.saving.storage import FolderStorage, FolderTarget
from paceline.training.saving.uncommitted import UncommittedCheckpoint, snapshot_state
from paceline.training.saving.writers import BackgroundWriter
from paceline.training.state import TrainState
from scripts.torture.saver import SPEC, state_at
from tests.ranks import run_ranks
from tests.waiting import wait_until

#: What a rank tells of a save: its step, or the error's type and text.
Told = int | tuple[str, str]


class Ranks:
    """One rank's saves, whose first all ranks have made together."""

    def __init__(self, world: RankPlace, folder: Path) -> None:
        self.group = join(world, GroupAborter())
        self.checkpoints = CheckpointDirectory(FolderStorage(folder), "torture", 1, SPEC, self.group)
        self.writer = BackgroundWriter(world.world_size, print)
        open_directory(self.checkpoints, ())
        checkpoint.save(self.checkpoints, state_at(1), {})

    def uncommitted(self, state: TrainState, *, agree: bool = False) -> UncommittedCheckpoint:
        return snapshot_state(self.checkpoints, state, {}, self.writer.snapshot, agree=agree)

    def begin(self, state: TrainState, *, agree: bool = False) -> PendingSave:
        return PendingSave(self.group, self.uncommitted(state, agree=agree), self.writer)

    def close(self) -> None:
        self.writer.close()
        self.group.barrier_and_leave()
        self.group.close()


def sizes_of_all(group: Group, pending: PendingSave) -> list[int]:
    """As the exchange of a step has them, once every rank's work is done."""
    wait_until(lambda: pending.outcome_bytes is not None, "this rank's work", seconds=30)
    sizes = torch.zeros(group.world_size)
    sizes[group.rank] = pending.outcome_bytes or 0
    return [int(size) for size in group.start_sum(sizes)()]


def told(group: Group, pending: PendingSave, advance: Callable[[], CommittedCheckpoint | None]) -> Told:
    try:
        while (committed := advance()) is None:
            pass
    except CheckpointSaveError as error:
        return type(error).__name__, str(error)
    assert committed.manifest.step == pending.step
    return pending.step


def behind_steps(ranks: Ranks, pending: PendingSave) -> Told:
    return told(ranks.group, pending, lambda: pending.advance_behind_steps(sizes_of_all(ranks.group, pending)))


def full(*_: Any) -> NoReturn:
    raise OSError(errno.ENOSPC, "No space left on device")


def never(*_: Any) -> NoReturn:
    raise AssertionError("a rank waited for the others")


def without_waiting(world: RankPlace, folder: Path) -> Told:
    ranks = Ranks(world, folder)
    ranks.group.all_gather_object = never  # type: ignore[method-assign, assignment]
    found = behind_steps(ranks, ranks.begin(state_at(2)))
    del ranks.group.all_gather_object  # type: ignore[attr-defined]
    checkpoint.verify(ranks.group, folder / "step-2.g1")
    ranks.close()
    return found


def test_once_the_ranks_have_planned_a_save_waits_for_none_of_them(tmp_path: Path) -> None:
    assert run_ranks(without_waiting, 3, tmp_path / "job") == [2, 2, 2]


def with_a_new_buffer_on_one(world: RankPlace, folder: Path) -> list[Told]:
    ranks, state = Ranks(world, folder), state_at(2)
    if world.rank == 1:
        state.task.model.register_buffer("more", torch.zeros(3))
    found = [behind_steps(ranks, ranks.begin(state)), behind_steps(ranks, ranks.begin(state, agree=True))]
    ranks.close()
    return found


def test_a_state_of_another_form_on_one_rank_is_told_on_all_and_planned_anew(tmp_path: Path) -> None:
    told = ("StateChangedError", "rank 1: model or optimizer have changed their form since the last save")
    assert run_ranks(with_a_new_buffer_on_one, 2, tmp_path / "job") == [[told, 2]] * 2


def with_a_failure(world: RankPlace, folder: Path, culprit: int, moment: str, how: str) -> Told:
    ranks = Ranks(world, folder)
    if world.rank == culprit and moment == "join":
        FolderTarget.join_scratch = full  # type: ignore[method-assign, assignment]  # in this process, which ends with the test
    made = ranks.uncommitted(state_at(2))
    if world.rank == culprit and moment == "publish":
        (folder / "step-2.g1").mkdir()
        (folder / "step-2.g1" / "another's file").touch()
    pending = PendingSave(ranks.group, made, ranks.writer)
    found = told(ranks.group, pending, pending.advance) if how == "waits" else behind_steps(ranks, pending)
    ranks.close()
    return found


@pytest.mark.parametrize("how", ["waits", "behind steps"])
@pytest.mark.parametrize(("culprit", "moment"), [(1, "join"), (0, "publish")])
def test_a_failure_on_one_rank_is_told_alike_on_all(tmp_path: Path, culprit: int, moment: str, how: str) -> None:
    first, second = run_ranks(with_a_failure, 2, tmp_path / "job", culprit, moment, how)
    assert first == second
    assert first[0] == "CheckpointSaveError"
    assert f"rank {culprit}: " in first[1]
    assert not list((tmp_path / "job").glob("*.tmp"))


def between_gathers(world: RankPlace, folder: Path) -> Told:
    """A save that has begun behind steps, and whose end is waited for."""
    ranks = Ranks(world, folder)
    pending = ranks.begin(state_at(2))
    pending.advance_behind_steps(sizes_of_all(ranks.group, pending))
    found = told(ranks.group, pending, pending.advance)
    ranks.close()
    return found


def test_what_has_begun_behind_steps_can_be_waited_for(tmp_path: Path) -> None:
    assert run_ranks(between_gathers, 2, tmp_path / "job") == [2, 2]


def gathered(world: RankPlace) -> list[list[bytes]]:
    group = join(world, GroupAborter())
    contents = [b"", b"ab", bytes(100_000)]
    finishes = [
        group.start_gather(contents[(world.rank + turn) % 3], [len(contents[(rank + turn) % 3]) for rank in range(3)]) for turn in (0, 1)
    ]
    found = [finish() for finish in reversed(finishes)]
    group.barrier_and_leave()
    group.close()
    return found


def test_contents_of_any_length_are_gathered_and_may_be_waited_for_in_any_order() -> None:
    contents = [b"", b"ab", bytes(100_000)]
    assert run_ranks(gathered, 3) == [[[*contents[1:], contents[0]], contents]] * 3
