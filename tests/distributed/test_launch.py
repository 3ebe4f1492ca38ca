"""Ranks that torchrun started find each other by its variables."""

from __future__ import annotations

import pytest
import torch

from paceline.distributed.env import position, rendezvous_address
from paceline.distributed.errors import LaunchError
from paceline.distributed.launch import device_of, meet
from tests.launched import run_launched

AXES = {"replicate": [[0, 2], [1, 3]], "shard": [[0, 1], [2, 3]]}


def form_a_group() -> tuple[list[int], list[int], str]:
    """The ranks that this one meets, the sum over its shard axis, and the error of a second group."""
    place = position()
    meeting = meet(place)
    assert meeting.numbers("tens", 10 * place.rank) == [0, 10, 20, 30]
    group = meeting.join(torch.device("cpu"), AXES)
    heard = group.all_gather_object(place.rank)
    line = group.axis_groups["shard"].sum(torch.tensor([float(10**place.rank)])).item()
    along = [rank for rank in range(place.world_size) if f"{line:04.0f}"[-1 - rank] == "1"]
    try:
        meet(place)
    except LaunchError as error:
        refusal = str(error)
    group.barrier_and_leave()
    group.close()
    return heard, along, refusal


def test_they_meet_and_know_their_lines_and_no_process_joins_twice() -> None:
    for rank, (heard, along, refusal) in enumerate(run_launched(form_a_group, 4)):
        assert heard == [0, 1, 2, 3]
        assert along == AXES["shard"][rank // 2]
        assert "leave out dist.init_process_group()" in refusal


def test_half_an_address_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "10.0.0.7")
    monkeypatch.delenv("MASTER_PORT", raising=False)
    assert rendezvous_address() is None
    monkeypatch.setenv("MASTER_PORT", "29500")
    assert rendezvous_address() == "10.0.0.7:29500"


def test_a_rank_without_a_gpu_of_its_own_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("LOCAL_RANK", "2")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    with pytest.raises(LaunchError, match="local rank 2 of 4 has no GPU of its own, there are 2; start 2 ranks on this machine"):
        device_of(position())
