"""A rank's life: one process, one state, and as many generations as it lives through."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import Literal

import msgspec
import torch

from distributed import env
from distributed.abort import Fence
from distributed.process_group import Remains, set_aside_group
from distributed.reach import Place, Presence, ended_processes, require_answer
from parallelism.plan import Coordinates
from training.build import build_generation
from training.errors import AbandonedError
from training.link import Broken, FailureReport, Outcome, Parked, RankFolder, RankOrder, World
from training.rehearsal import rehearse
from training.renewal import Legacy, legacy_of, renewed
from training.reporting.agent_link import AgentLink
from training.reporting.failures import describe
from training.reporting.telemetry import Telemetry
from training.reporting.watchdog import Watchdog
from training.saving.vault import require_visible
from training.spec.job import JobSpec
from training.state import TrainState, building, new_state
from training.trainer import train

#: A coordinator that is away delays a recovery until it is back; beyond this the job's checkpoints are the better hope.
ORDER_TIMEOUT_SECONDS = 3600.0


class Life:
    """`order` is this rank's present place; `state` outlives it."""

    def __init__(self, order: RankOrder) -> None:
        self.order = order
        self.spec = JobSpec.model_validate(order.spec)
        self.state: TrainState | None = None
        self.link = AgentLink(order.agent_socket, order.world)
        self.watchdog = Watchdog(self.link.stalled, self.spec.fault_tolerance.hang_seconds)
        self.telemetry = self._speak_from(order, led_before=False)
        self._remains = Remains()  # of the generation before this one
        self._presence = Presence()

    @property
    def folder(self) -> RankFolder:
        return RankFolder.at(Path(self.order.folder))

    @property
    def step(self) -> int:
        return self.state.step if self.state is not None else 0

    def live(self) -> Outcome:
        """Until training ends, or nobody needs this rank. A lost peer ends a generation, not this process, where the job closes up."""
        env.enter(self.order.world, self.order.world.interface, self.folder.path)
        torch.set_num_threads(env.intra_op_threads())
        if self.order.world.parked:
            require_fit(self.order.world)
        self.state = new_state(self.spec, device_of(self.order), env.cache_directory(), building(self.spec))
        if self.order.world.parked:
            rehearse(self.spec, self.state)
        outcome: Outcome | None = None
        while outcome is None:
            outcome = self._park() if self.order.world.parked else self._train()
        self.telemetry.wait_for_traces()
        return outcome

    def close(self) -> None:
        self.watchdog.close()
        self._presence.close()
        self.telemetry.close()
        self.link.close()

    def _park(self) -> Outcome | None:
        """Wait for a place as long as it takes: a rank that nobody wants any more is ended by its spawner."""
        assert self.state is not None
        self.state.forget()  # who had a place before has none now, and the others go on without it
        self.link.say(Parked())
        return self._go_to(self.link.next_order(None))

    def _train(self) -> Outcome | None:
        """One generation; None: this rank has taken its place in another."""
        assert self.state is not None
        ended = self._live_through_generation(self.state)
        if isinstance(ended, FailureReport):
            self._break_off(ended)
            return self._go_to(self._await_order(ended))
        if ended != "left":
            return ended
        order = self.link.next_order(0.0)
        if order is not None:
            self._renew(self._let_go())
        return self._go_to(order)

    def _go_to(self, order: RankOrder | None) -> Outcome | None:
        if order is None:
            return "released"
        self._enter(order)
        return None

    def _live_through_generation(self, state: TrainState) -> Literal["completed", "paused", "left"] | FailureReport:
        """Once the except block is left nothing refers to the model's wrapper any more, and the group can be destroyed."""
        fence = Fence(self._presence)
        self.link.guard(fence)
        self.watchdog.guard(fence, self.order.world.world_size, state.step)
        try:
            generation = build_generation(self.spec, self.order.world, state, self.telemetry, fence)
            self.spec = generation.spec  # with the micro-batch that was found, if it had to be
            self._remains.drop()
            ended = train(generation)
            if ended == "left":
                self._remains = generation.leave()
            else:
                generation.close()
        except Exception as error:
            failure = describe(error, self.order.world.rank, state.step)
            if not self.spec.closes_up or not (failure.kind == "peer_lost" or fence.struck.is_set()):
                raise
        else:
            fence.left.set()
            return ended
        fence.left.set()
        fence.strike()  # frees the neighbours too, and the threads of the group that still wait
        return msgspec.structs.replace(failure, ended=ended_processes(fence.presences, self.order.world.rank))

    def _break_off(self, failure: FailureReport) -> None:
        """Drop whatever depended on the world."""
        assert self.state is not None
        self.watchdog.activity.give_up()
        self.state.rewind()
        step, legacy = self.state.step, self._let_go()
        gc.collect()
        set_aside_group().drop()
        self.link.say(Broken(step=step, failure=failure))
        self._renew(legacy)

    def _let_go(self) -> Legacy | None:
        """Of a state that does not outlive its generation; None: it does."""
        world, plan = self.order.world, self.spec.parallelism
        if self.state is None or not plan.in_parts:
            return None
        part = Coordinates(plan.degrees(world.world_size), world.rank).part if plan.always_cuts_alike else None
        legacy, self.state = legacy_of(self.state, part), None
        return legacy

    def _renew(self, legacy: Legacy | None) -> None:
        """While the others still find out, or are on their way."""
        if legacy is not None:
            gc.collect()
            self.state = renewed(self.spec, device_of(self.order), env.cache_directory(), legacy)

    def _await_order(self, failure: FailureReport) -> RankOrder | None:
        """None: released."""
        order = self.link.next_order(ORDER_TIMEOUT_SECONDS)
        if order is None and not self.link.released:
            raise AbandonedError(f"no place in a new generation within {ORDER_TIMEOUT_SECONDS:g} s after this: {failure.message}")
        return order

    def _enter(self, order: RankOrder) -> None:
        """Everything written from now on goes to the new place; the old one is complete before the agent hears of it."""
        led, before = self.order.world.rank == 0, self.folder
        self.telemetry.close()
        self.order = order
        redirect(before, self.folder)
        env.enter(order.world, order.world.interface, self.folder.path)
        self.telemetry = self._speak_from(order, led_before=led)
        self.link.enter(order.world)

    def _speak_from(self, order: RankOrder, *, led_before: bool) -> Telemetry:
        return Telemetry(
            order.world, self.spec, RankFolder.at(Path(order.folder)), self.link, self.watchdog.activity, led_before=led_before
        )


def require_fit(world: World) -> None:
    """Before a rank is parked: it could do its part. Who finds out only when it has joined has kept its whole gang waiting."""
    require_visible(Path(world.checkpoint_directory), world.rank)
    require_answer(world.rank, Place(world.store_host, world.store_port))


def redirect(before: RankFolder, folder: RankFolder) -> None:
    """Output goes to the new folder; so does whatever is written to the working directory, if that was the old one."""
    if Path.cwd() == before.path:
        os.chdir(folder.path)
    sys.stdout.flush()
    sys.stderr.flush()
    output = os.open(folder.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)


def device_of(order: RankOrder) -> torch.device:
    if order.world.device == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", order.world.slot)
    torch.cuda.set_device(device)
    torch.backends.cudnn.allow_tf32 = False  # fp32 is fp32, in convolutions as in matrix products
    return device
