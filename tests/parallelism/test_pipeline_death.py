"""A stage that dies in the middle of a step frees those that wait for it, and those that wait for them."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from distributed.abort import Fence
from distributed.process_group import join
from parallelism.pipeline_parallel import pipeline
from parallelism.plan import even_deal
from tests.parallelism.pipelines import Case, Step, make, place_of
from tests.ranks import _processes, call, end, make_world, receive, store_server
from training.link import World

FREED_SECONDS = 20.0  # gloo itself would wait for half an hour
CASE = Case("1f1b", samples=8, model="untied")


class Fatal(Step):
    """The last stage is gone, or says nothing more, as it comes to its third loss."""

    def __init__(self, case: Case, kind: str) -> None:
        super().__init__(case, 1)
        self.kind, self.losses = kind, 0

    def loss(self, model: nn.Module, index: int, batch: Tensor) -> Tensor:
        self.losses += 1
        if self.losses == 3 and self.kind == "SIGKILL":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.losses == 3:
            threading.Event().wait()
        return super().loss(model, index, batch)


def end_of_step(world: World, kind: str, started: Any) -> str:
    """What a step raises in whom it frees. Who is freed leaves the generation, as ranks do: its sockets close too."""
    torch.set_num_threads(1)
    fence = Fence()
    model, units = make(CASE)
    pipelined = pipeline(model, units, Step(CASE, 1), place_of(world, join(world, fence), replicas=1), CASE.schedule)
    pipelined.begin_step(even_deal(CASE.micro_batches, 1), {})
    last = world.rank == world.world_size - 1
    started.send(world.rank)
    if kind == "silence":
        threading.Timer(0.5, fence.strike).start()
    try:
        pipelined.run(Fatal(CASE, kind) if last else Step(CASE, 1))
    except RuntimeError as error:
        fence.strike()
        return str(error)
    return "nothing"


def survivors(kind: str, world_size: int) -> list[str]:
    """What each rank but the last one raised, within FREED_SECONDS of the moment when all had begun the step."""
    with store_server() as store:
        store.admit(1)
        started, ended, processes = [], [], []
        for rank in range(world_size):
            begun, begins = _processes.Pipe(duplex=False)
            receiver, sender = _processes.Pipe(duplex=False)
            world = make_world(rank, world_size, store.port, Path("/nonexistent"))
            process = _processes.Process(target=call, args=(sender, end_of_step, world, (kind, begins)))
            process.start()
            sender.close()
            processes.append(process)
            started.append(begun)
            ended.append(receiver)
        for begun in started:
            assert begun.poll(60)
        deadline = time.monotonic() + FREED_SECONDS
        errors = [receive(each, max(0.0, deadline - time.monotonic())) for each in ended[:-1]]
        processes[-1].kill()
        for process in processes:
            end(process)
        return errors


@pytest.mark.parametrize("world_size", [2, 3])
def test_a_killed_stage_frees_its_neighbour_and_that_one_the_next(world_size: int) -> None:
    errors = survivors("SIGKILL", world_size)
    assert len(errors) == world_size - 1
    assert "nothing" not in errors


def test_a_silent_stage_holds_nobody_whose_fence_is_struck() -> None:
    assert all("the generation is over" in error or "closed" in error for error in survivors("silence", 2))
