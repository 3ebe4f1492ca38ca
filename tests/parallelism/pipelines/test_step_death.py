"""A stage that dies or stalls in the middle of a step blocks no rank: not its neighbour, and not the ranks that wait for that neighbour."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

from paceline.distributed.abort import GroupAborter
from paceline.parallelism.pipelines.pipelined import Pipelined, PipelinePosition, pipeline
from paceline.parallelism.plan import assign_evenly
from paceline.training.link import RankPlace
from tests.parallelism.pipelines.runs import CPU, Case, Step, joined, make
from tests.ranks import PROCESSES, RANK_TIMEOUT_SECONDS, call, make_world, receive, store_server
from tests.waiting import wait_until

FREED_SECONDS = 20.0  # gloo itself would wait for half an hour
CASE = Case("1f1b", model="untied")


class Fatal(Step):
    """A model whose process dies at the third loss."""

    def loss(self, model: nn.Module, index: int, batch: Tensor) -> Tensor:
        if index == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().loss(model, index, batch)


def begun(world: RankPlace, aborter: GroupAborter) -> Pipelined:
    model, units = make(CASE)
    pipelined = pipeline(model, units, Step(CASE, 1), PipelinePosition.of(joined(world, aborter, replicas=1)), CASE.schedule, CPU)
    pipelined.begin_step(assign_evenly(CASE.micro_batches, 1), {})
    return pipelined


def step_beside_a_killed_stage(world: RankPlace, started: Any) -> str:
    """Return what the step raises. A rank that is freed leaves the generation, as ranks do: its sockets close too."""
    aborter = GroupAborter()
    pipelined = begun(world, aborter)
    started.send(world.rank)
    try:
        pipelined.run((Fatal if world.rank == world.world_size - 1 else Step)(CASE, 1))
    except RuntimeError as error:
        aborter.abort()
        return str(error)
    return "nothing"


def step_beside_a_silent_stage(world: RankPlace, started: Any) -> str:
    """The group is aborted as soon as this rank waits for the other one."""
    aborter = GroupAborter()
    pipelined = begun(world, aborter)
    started.send(world.rank)
    if world.rank == 1:
        threading.Event().wait()  # until the test kills it
    threading.Thread(target=abort_when_waiting, args=(aborter,)).start()
    with pytest.raises(RuntimeError) as raised:
        pipelined.run(Step(CASE, 1))
    return str(raised.value)


def abort_when_waiting(aborter: GroupAborter) -> None:
    wait_until(lambda: aborter.calls.awaited is not None, "a wait for the other stage", seconds=FREED_SECONDS)
    aborter.abort()


def survivors(function: Any, world_size: int) -> list[str]:
    """Return what each rank but the last one raises, within FREED_SECONDS of the moment when all have begun the step."""
    with store_server() as store, contextlib.ExitStack() as stack:
        store.admit(1)
        starts, ends = [], []
        for rank in range(world_size):
            start, started = PROCESSES.Pipe(duplex=False)
            ended, sender = PROCESSES.Pipe(duplex=False)
            stack.enter_context(running(call, sender, function, make_world(rank, world_size, store.port, Path("/nonexistent")), (started,)))
            starts.append(start)
            ends.append(ended)
        assert all(start.poll(RANK_TIMEOUT_SECONDS) for start in starts)
        deadline = time.monotonic() + FREED_SECONDS
        return [receive(each, max(0.0, deadline - time.monotonic())) for each in ends[:-1]]


@contextlib.contextmanager
def running(target: Any, *arguments: Any) -> Iterator[None]:
    process = PROCESSES.Process(target=target, args=arguments)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


@pytest.mark.parametrize("world_size", [2, 3])
def test_a_killed_stage_frees_its_neighbour_and_that_one_the_next(world_size: int) -> None:
    errors = survivors(step_beside_a_killed_stage, world_size)
    assert len(errors) == world_size - 1
    assert "nothing" not in errors


def test_a_stage_that_waits_for_a_silent_one_is_freed_by_an_abort() -> None:
    (error,) = survivors(step_beside_a_silent_stage, 2)
    assert error
