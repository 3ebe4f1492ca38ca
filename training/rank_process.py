"""One rank process: one state, over as many generations as the process lives through."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import Literal

import msgspec
import torch

from paceline.distributed import env
from paceline.distributed.abort import GroupAborter
from paceline.distributed.probes import Endpoint, ProcessProbePort, ended_processes, require_answer
from paceline.distributed.retired_groups import RetiredGroups, retire_group
from paceline.distributed.torch_private import warn_if_untested
from paceline.parallelism.plan import Coordinates
from paceline.training.build import JoinedGeneration, build_generation
from paceline.training.errors import AbandonedError
from paceline.training.link import Broken, FailureReport, Outcome, Parked, RankOrder, RankPlace
from paceline.training.optim.bad_loss import BadLossError
from paceline.training.rank_folder import RankFolder
from paceline.training.reporting.agent_link import AgentLink
from paceline.training.reporting.failures import describe
from paceline.training.reporting.telemetry import Telemetry
from paceline.training.restoring import storage_of
from paceline.training.saving.checkpoint_directory import require_visible
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.state import TrainState, building, new_state
from paceline.training.state_handoff import CarriedState, detach_state, rebuild_state
from paceline.training.trainer import train
from paceline.training.warm_up import warm_up_step
from paceline.training.watchdog.watchdog import Watchdog

#: A coordinator that is away delays a recovery until it is back; beyond this the job's checkpoints are the better hope.
ORDER_TIMEOUT_SECONDS = 3600.0


class RankProcess:
    """Runs a rank from its first order to its end. `order` is its present place; `state` outlives it."""

    def __init__(self, order: RankOrder) -> None:
        self.order = order
        self.spec = order.job_spec
        self.state: TrainState | None = None
        self.link = AgentLink(order.agent_socket, order.world)
        self.watchdog = Watchdog(self.link.stalled, self.spec.fault_tolerance.hang_seconds)
        self.telemetry = self._open_telemetry(order, was_leader=False)
        self._retired = RetiredGroups()  # of the generation before this one
        self._presence = ProcessProbePort()

    @property
    def folder(self) -> RankFolder:
        return RankFolder.at(Path(self.order.folder))

    @property
    def step(self) -> int:
        return self.state.step if self.state is not None else 0

    def run(self) -> Outcome:
        """Train until training ends, or the job needs this rank no more.

        Where the job closes up, a lost peer ends a generation and not this process.
        """
        env.export_rank(self.order.world, self.order.world.interface, self.folder.path)
        warn_if_untested()
        torch.set_num_threads(env.intra_op_threads())
        if self.order.world.parked:
            require_fit(self.spec, self.order.world, self.folder)
        self.state = new_state(self.spec, device_of(self.order), env.cache_directory(), building(self.spec))
        if self.order.world.parked:
            warm_up_step(self.spec, self.state)
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
        """Wait for a place as long as it takes; the spawner ends a rank that its job needs no more."""
        assert self.state is not None
        self.state.reset()  # a rank that had a place before has none now, and the others go on without it
        self.link.send(Parked())
        return self._go_to(self.link.next_order(None))

    def _train(self) -> Outcome | None:
        """Train in one generation. Returns the outcome, or None once this rank has a place in another generation."""
        assert self.state is not None
        ended = self._run_generation(self.state)
        if isinstance(ended, FailureReport):
            self._abort_generation(ended)
            return self._go_to(self._wait_for_order(ended))
        if ended != "left":
            return ended
        order = self.link.next_order(0.0)
        if order is not None:
            self._rebuild(self._detach_state())
        return self._go_to(order)

    def _go_to(self, order: RankOrder | None) -> Outcome | None:
        if order is None:
            return "released"
        self._join_generation(order)
        return None

    def _run_generation(self, state: TrainState) -> Literal["completed", "paused", "left"] | FailureReport:
        """Build a generation and train in it. Returns how it ended, or the report of a failure that other ranks can close up from.

        Once it has returned, nothing refers to the model's wrapper any more, and the group can be destroyed.
        """
        aborter = GroupAborter(self._presence)
        self.link.guard(aborter)
        self.watchdog.guard(aborter, self.order.world.world_size, state.step)
        generation: JoinedGeneration | None = None
        try:
            generation = build_generation(self.spec, self.order.world, state, self.telemetry, aborter)
            self.spec = generation.spec  # with the micro-batch that was found, if it had to be
            self._retired.drop()
            ended = train(generation)
            if ended == "left":
                self._retired = generation.leave()
            else:
                generation.close()
        except BadLossError:
            raise  # every rank ends by itself, even if another was faster
        except Exception as error:
            failure = describe(error, self.order.world.rank, state.step, world_size=self.order.world.world_size)
            if not derived.closes_up(self.spec) or not (failure.kind == "peer_lost" or aborter.aborted.is_set()):
                raise
        else:
            aborter.exited.set()
            return ended
        aborter.exited.set()
        aborter.abort()  # frees the neighbours too, and the threads of the group that still wait
        if generation is not None:
            aborter.wait_for_tasks_in_order()  # which change what gradients have left out
            generation.remember_unsent()
        return msgspec.structs.replace(failure, ended=ended_processes(aborter.process_probes, self.order.world.rank))

    def _abort_generation(self, failure: FailureReport) -> None:
        """Drop everything that depends on the world, report the loss of the group, and rebuild the state."""
        assert self.state is not None
        self.watchdog.activity.abandon()
        self.state.rewind()
        step, carried = self.state.step, self._detach_state()
        gc.collect()
        retire_group().drop()
        self.link.send(Broken(step=step, failure=failure))
        self._rebuild(carried)

    def _detach_state(self) -> CarriedState | None:
        """For sharded jobs, detach the state from the dying model and return it. Returns None for replicated jobs, whose state stays."""
        world, plan = self.order.world, self.spec.parallelism
        if self.state is None or not plan.in_parts:
            return None
        part = Coordinates(plan.degrees(world.world_size), world.rank).state_shard if plan.has_fixed_partition else None
        carried, self.state = detach_state(self.state, part), None
        return carried

    def _rebuild(self, carried: CarriedState | None) -> None:
        """Rebuild the state, while the other ranks still find out about the loss, or are on their way."""
        if carried is not None:
            gc.collect()
            self.state = rebuild_state(self.spec, device_of(self.order), env.cache_directory(), carried)

    def _wait_for_order(self, failure: FailureReport) -> RankOrder | None:
        """Return the next order, or None if this rank is released. Raises AbandonedError after ORDER_TIMEOUT_SECONDS."""
        order = self.link.next_order(ORDER_TIMEOUT_SECONDS)
        if order is None and not self.link.released:
            raise AbandonedError(f"no place in a new generation within {ORDER_TIMEOUT_SECONDS:g} s after this: {failure.message}")
        return order

    def _join_generation(self, order: RankOrder) -> None:
        """Take the place of `order`. Everything written from now on goes there; the old place is complete before the agent hears of it."""
        was_leader, before, former = self.order.world.rank == 0, self.folder, self.order.world.interface
        self.telemetry.close()
        self.order = order
        redirect(before, self.folder)
        env.export_rank(order.world, order.world.interface, self.folder.path, former)
        self.telemetry = self._open_telemetry(order, was_leader=was_leader)
        self.link.enter(order.world)

    def _open_telemetry(self, order: RankOrder, *, was_leader: bool) -> Telemetry:
        return Telemetry(
            order.world, self.spec, RankFolder.at(Path(order.folder)), self.link, self.watchdog.activity, was_leader=was_leader
        )


def require_fit(spec: JobSpec, world: RankPlace, folder: RankFolder) -> None:
    """Check, before a rank is parked, that it can reach the checkpoints and the store: failing after joining would keep the whole gang
    waiting."""
    require_visible(storage_of(spec, world, folder), world.rank)
    require_answer(world.rank, Endpoint(world.store_host, world.store_port))


def redirect(before: RankFolder, folder: RankFolder) -> None:
    """Redirect output to the new folder, and the working directory too if it was the old one."""
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
    device = torch.device("cuda", env.device_index(order.world.slot))
    torch.cuda.set_device(device)
    torch.backends.cudnn.allow_tf32 = False  # fp32 is fp32, in convolutions as in matrix products
    return device
