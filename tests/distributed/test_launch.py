"""Ranks that torchrun started find each other by its variables."""

from __future__ import annotations

import atexit
import threading

import pytest
import torch

from paceline.distributed.env import position, rendezvous_address
from paceline.distributed.errors import LaunchError
from paceline.distributed.launch import device_of, meet
from tests.distributed.test_in_flight import Memory
from tests.launched import run_launched

TIMEOUT_SECONDS = 30.0
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


def end_without_leaving() -> bool:
    """Whether nothing is under way once the functions of this interpreter's end have run. On rank 0 a thread of gloo's frees a tensor, and is not done
    before these wait for it."""
    place = position()
    meeting, freeing, waited_for = meet(place), threading.Event(), threading.Event()
    assert meeting.store is not None
    assert meeting.aborter is not None
    wait = meeting.aborter.wait_for_threads
    meeting.aborter.wait_for_threads = lambda: (waited_for.set(), wait())  # type: ignore[method-assign, assignment, return-value]
    group = meeting.join(torch.device("cpu"), {})

    def free() -> None:
        freeing.set()
        waited_for.wait(TIMEOUT_SECONDS)

    if place.rank == 1:
        meeting.store.get("only gloo has it")
        group.sum(torch.zeros(4)).wait()
    else:
        group.sum(torch.frombuffer(Memory(16, free), dtype=torch.float32))
        meeting.store.set("only gloo has it", "")
        assert freeing.wait(TIMEOUT_SECONDS)
    atexit._run_exitfuncs()
    return meeting.aborter.in_flight.is_empty


def test_who_ends_without_leaving_its_group_ends_no_thread_of_gloos() -> None:
    """A program that failed, or did not close its Trainer, was killed (SIGABRT) where it ended while gloo released its last tensors."""
    assert run_launched(end_without_leaving, 2) == [True, True]


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
