"""One generation of a simulated job: its ranks meet, step together, save, break, and go on to the next generation.

A gang follows what real ranks do (`training.trainer`, `training.faults.md`), without computing anything: ranks that lost a peer say so and
wait, a change at a boundary comes after a step that all take, and what a rank has committed stays with its process.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from paceline.cluster.protocol import GenerationKey
from paceline.cluster.simulation import step_times
from paceline.cluster.simulation.clock import SimulatedClock
from paceline.cluster.simulation.faults import WishedFault, not_understood, wished
from paceline.cluster.simulation.job_model import SAVE_SECONDS, JobModel
from paceline.cluster.simulation.machines import CardModel
from paceline.cluster.simulation.ranks import SimulatedRank
from paceline.objects.location import place_at
from paceline.parallelism.plan import StateShard, state_shards
from paceline.training.link import Broken, FailureReport, GroupCall, Joined, Progress, Stalled
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.spec.workload import ScriptWorkload
from paceline.training.timing.phase_times import limits_of_steps

log = logging.getLogger(__name__)

#: Modelled seconds until all ranks of a gang have met, and until survivors notice that a peer is gone.
RENDEZVOUS_SECONDS, NOTICE_SECONDS = 0.5, 0.1
LINE_SECONDS = 1.0


@dataclass(frozen=True)
class GangSettings:
    """Facts that all gangs of a simulation share."""

    clock: SimulatedClock
    card: CardModel
    slots_per_node: int
    seed: int


@dataclass(eq=False)
class Gang:
    """The ranks of one generation. `called`: told to take their places; `members`: in them."""

    key: GenerationKey
    spec: JobSpec
    world_size: int
    settings: GangSettings
    had_faults: set[WishedFault]  # of this job, in any generation
    called: dict[int, SimulatedRank] = field(default_factory=dict)
    members: dict[int, SimulatedRank] = field(default_factory=dict)
    step: int = 0
    running: bool = False
    following: Gang | None = None  # takes over after the next step
    _pausing: bool = False
    _task: asyncio.Task[None] | None = None
    _printed_at: float = 0.0  # monotonic
    _recent: list[float] = field(default_factory=list)  # the clock's seconds of the newest steps

    # -- ranks come and go

    def call(self, rank: SimulatedRank) -> None:
        """A process was told to take this place: at once, or with all others after a step of the generation that they are in."""
        self.called[rank.key.rank] = rank
        if not rank.world.at_boundary:
            self._take_in(rank)
        elif len(self.called) == self.world_size:
            origins = {gang for each in self.called.values() if (gang := each.process.gang) is not None and gang.running}
            for origin in origins:
                origin.following = self
            if not origins:
                self._take_in_all()

    def _take_in(self, rank: SimulatedRank) -> None:
        if rank.process.ended or rank.key.rank in self.members:
            return
        if rank.process.gang is not None:
            rank.process.gang.dissolve()
        rank.process.gang = self
        self.members[rank.key.rank] = rank
        rank.enter()
        if len(self.members) == self.world_size:
            self._task = asyncio.create_task(self._run(), name=f"gang {self.key}")
            self._task.add_done_callback(_tell_error)

    def _take_in_all(self) -> None:
        for rank in self.called.values():
            self._take_in(rank)

    def pause(self, rank: SimulatedRank) -> None:
        """Ask for a save and an end after the present step; a rank that is not at work just ends."""
        if self.running:
            self._pausing = True
        elif rank.key.rank not in self.members:
            rank.end("paused", exit_code=0)

    def dissolve(self) -> None:
        """Stop stepping, without a word: the ranks go their own ways."""
        self._stop()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    def lose(self, lost: SimulatedRank) -> None:
        """A process of this gang is gone: the others notice, say so and wait; where a job starts again they end."""
        self.members.pop(lost.key.rank, None)
        if self.running:
            self.dissolve()
            seconds = self.settings.clock.seconds(NOTICE_SECONDS)
            asyncio.get_running_loop().call_later(seconds, self._notice, lost.key.rank)

    def _notice(self, lost: int) -> None:
        for rank in [each for each in self.members.values() if not each.process.ended and each.process.gang is self]:
            failure = FailureReport(
                kind="peer_lost",
                rank=rank.key.rank,
                message=f"connection to rank {lost} closed by peer (simulated)",
                step=self.step,
                time=time.time(),
                ended=(lost,),
            )
            if derived.closes_up(self.spec):
                rank.say(Broken(step=self.step, failure=failure))
            elif not isinstance(self.spec.workload, ScriptWorkload):
                rank.end("failed", exit_code=1, failure=failure)

    # -- faults

    def crash(self, number: int, kind: str = "crash") -> None:
        """End one rank of its own: by a signal, by an exception in the code, or for want of memory."""
        rank = self.members.get(number % self.world_size)
        if rank is None or not self.running:
            return
        if kind == "crash":
            rank.outbox.line("*** simulated fault: this process is killed", "error")
            rank.kill()
        else:
            failure = self.model.failure(kind, rank.key.rank, self.step + 1)
            rank.outbox.line(failure.traceback or failure.message, "error")
            rank.end("failed", exit_code=1, failure=failure)
        self.lose(rank)

    def hang(self, number: int) -> None:
        """Stop one process by a signal: the others wait for it in their next call."""
        rank = self.members.get(number % self.world_size)
        if rank is None or not self.running:
            return
        self.dissolve()
        rank.suspend()
        limits = limits_of_steps(self._recent[-64:], self.spec.fault_tolerance.hang_seconds)
        since = time.time()
        asyncio.get_running_loop().call_later(limits.stall, self._stall, rank.key.rank, since, limits.stall, limits.patience)

    def _stall(self, culprit: int, since: float, limit: float, patience: float) -> None:
        waits = GroupCall(number=self.step + 1, what="all-reduce of the step's losses")
        for rank in self.members.values():
            if rank.key.rank != culprit and rank.process.gang is self and not rank.process.ended:
                seconds = time.time() - since
                rank.say(
                    Stalled(
                        step=self.step + 1,
                        phase="exchange",
                        seconds=seconds,
                        limit=limit,
                        patience=patience,
                        since=since,
                        waits=waits,
                        recent=(waits,),
                    )
                )

    # -- the course of a generation

    async def _run(self) -> None:
        entered_at = time.time()
        await self.settings.clock.sleep(RENDEZVOUS_SECONDS, least=0.05)
        carried = self._begin()
        joined_at = time.time()
        self.running = True
        self.settings.clock.running_ranks += self.world_size
        if self.model.cost.memory_bytes > self.settings.card.memory_bytes:
            return self.crash(0, "out_of_memory")
        due = time.monotonic()
        while self.step < self.model.total:
            due = await self._one_step(max(due, time.monotonic() - 1.0))
            if carried:
                self._tell_carried_on(entered_at, joined_at)
                carried = False
            if self._pausing or self.step in self.model.pauses:
                return await self._end_paused()
            if self.following is not None:
                return self._cross()
            if self._fault_wished():
                return None
        return await self._complete()

    def _stop(self) -> None:
        if self.running:
            self.running = False
            self.settings.clock.running_ranks -= self.world_size

    def _begin(self) -> bool:
        """Agree on the step to go on from. Returns True where processes have brought it from another generation."""
        states = [rank.process.step for rank in self.members.values() if rank.process.step is not None]
        lead = self.members[0]
        parts = self._parts()
        carried = bool(states) and set(parts) <= {rank.process.part for rank in self.members.values() if rank.process.step is not None}
        if carried:
            self.step = max(states)
        elif lead.world.restore_from:
            directory = lead.world.restore_from[0]
            self.step = step_in(directory)
            lead.outbox.event("checkpoint_restored", directory=directory, step=self.step)
            lead.outbox.line(f"restored {directory} (simulated)")
        for number, rank in self.members.items():
            rank.process.step, rank.process.part = self.step, parts[number]
            rank.say(Joined(step=self.step, total_steps=self.model.total))
        lead.outbox.line(
            f"simulated: no process runs, every number below comes from a model; training from step {self.step + 1} to {self.model.total}"
        )
        for word in not_understood(self.spec.environment.variables):
            lead.outbox.line(f"SIMULATED_FAULTS: {word!r} is no fault; write for example exception@40 or hang@90:3", "warning")
        return carried

    def _parts(self) -> Sequence[StateShard]:
        """The part of the state that each rank is to hold, by rank; a script's are its own matter."""
        if isinstance(self.spec.workload, ScriptWorkload):
            return ((),) * self.world_size
        return state_shards(self.spec.parallelism.degrees(self.world_size))

    async def _one_step(self, due: float) -> float:
        """Let all ranks do a step. Returns when it ended, on the monotonic clock."""
        done = step_times.gang_step(self.model.cost, self.speeds, self._drawn)
        wall = self.settings.clock.of_step(done.seconds)
        await asyncio.sleep(max(0.0, due + wall - time.monotonic()))
        self.step += 1
        self._recent = [*self._recent[-255:], wall]
        for number, rank in self.members.items():
            rank.process.step = self.step
            values: dict[str, float | str] = {**done.ranks[number], "dropped_records": 0.0}
            if number == 0:
                values |= self.model.values(self.step, done.seconds)
            rank.outbox.record(self.step, values)
            rank.say(Progress(step=self.step))
        self._print_progress(done.seconds)
        self._evaluate_and_save()
        return due + wall

    def _print_progress(self, seconds: float) -> None:
        now = time.monotonic()
        if now - self._printed_at >= LINE_SECONDS:
            self._printed_at = now
            self.members[0].outbox.line(self.model.progress_line(self.step, seconds))

    def _evaluate_and_save(self) -> None:
        training, lead = self.spec.training, self.members[0]
        if training is None:
            return
        every, save = training.eval_every_steps, self.spec.checkpoint.every_steps
        if every is not None and (self.step % every == 0 or self.step in self.model.pauses):
            metrics = self.model.evaluation(self.step)
            lead.outbox.record(self.step, metrics)
            lead.outbox.event("evaluated", step=self.step, metrics=metrics)
            lead.outbox.line(f"step {self.step}/{self.model.total} eval_loss {metrics['eval_loss']:.4f}")
        if save is not None and self.step % save == 0:
            self._save()

    def _save(self) -> None:
        lead = self.members[0]
        root = lead.world.checkpoint_directory or f"/simulated/checkpoints/{self.key.job_id}"
        directory = place_at(root) / f"step-{self.step}.g{self.key.generation}"
        lead.outbox.event("checkpoint_committed", **self.model.checkpoint(self.step, str(directory)))

    def _tell_carried_on(self, entered_at: float, joined_at: float) -> None:
        newcomers = sum(rank.world.birth is None or rank.world.process.generation == self.key.generation for rank in self.members.values())
        self.members[0].outbox.event(
            "carried_on",
            step=self.step - 1,
            transfers=newcomers,
            fell_back=False,
            entered_at=entered_at,
            joined_at=joined_at,
            agreed_at=joined_at,
            first_step_at=time.time(),
        )

    def _fault_wished(self) -> bool:
        """Let the faults come that the spec asks for after this step. Returns True where the gang has ended by one."""
        for wish in wished(self.spec.environment.variables):
            if self.step < wish.step or wish in self.had_faults:
                continue
            self.had_faults.add(wish)
            if wish.kind == "nan":
                self._tell_bad_loss()
            elif wish.kind == "hang":
                self.hang(wish.rank)
            else:
                self.crash(wish.rank, wish.kind)
            if not self.running:
                return True
        return False

    def _tell_bad_loss(self) -> None:
        lead, policy = self.members[0], self.spec.fault_tolerance.on_nan
        lead.outbox.record(self.step, {"loss": "NaN"})
        lead.outbox.event(
            "bad_loss",
            step=self.step,
            what="not_finite",
            act=policy,
            again=False,
            loss="NaN",
            gradient_norm="NaN",
            limit=None,
            micro_batches=[],
            sample_ids=[],
            samples=0,
        )
        if policy == "stop":
            failure = FailureReport(
                kind="loss_not_finite", rank=0, message=f"the loss of step {self.step} is NaN (simulated)", step=self.step, time=time.time()
            )
            lead.end("failed", exit_code=1, failure=failure)
            self.lose(lead)

    # -- ends

    def _cross(self) -> None:
        """All ranks leave after this step: for the next generation, or because it does without them."""
        following = self.following
        assert following is not None  # the caller has seen it
        self._stop()
        for rank in self.members.values():
            rank.process.gang = None
            if rank.releasing:
                rank.end("released", exit_code=0)
        following._take_in_all()

    async def _end_paused(self) -> None:
        self._save_at_end()
        await self.settings.clock.sleep(SAVE_SECONDS, least=0.1)
        self._stop()
        for rank in self.members.values():
            rank.end("paused", exit_code=0)

    async def _complete(self) -> None:
        self._save_at_end()
        await self.settings.clock.sleep(SAVE_SECONDS, least=0.1)
        self.members[0].outbox.line(f"completed after {self.model.total} steps")
        self._stop()
        for rank in self.members.values():
            rank.end("completed", exit_code=0)

    def _save_at_end(self) -> None:
        every = self.spec.checkpoint.every_steps
        if not isinstance(self.spec.workload, ScriptWorkload) and not (every is not None and self.step % every == 0):
            self._save()

    # -- what follows from the spec, found out once

    @cached_property
    def model(self) -> JobModel:
        settings = self.settings
        return JobModel(self.spec, self.world_size, settings.card, settings.slots_per_node, settings.seed)

    @cached_property
    def speeds(self) -> tuple[float, ...]:
        ranks = [self.members[number] for number in range(self.world_size)]
        return step_times.speeds_of([f"{self.settings.seed}/{each.process.node}/{each.process.slot}" for each in ranks])

    @cached_property
    def _drawn(self) -> random.Random:
        return random.Random(f"{self.settings.seed}/{self.key}")


def _tell_error(done: asyncio.Task[None]) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        log.error("%s broke: %s", done.get_name(), error, exc_info=error)


def step_in(directory: str) -> int:
    """The step of a checkpoint's folder, `.../step-120.g3`; 0 where its name does not tell."""
    name = directory.rsplit("/", 1)[-1]
    number = name.removeprefix("step-").partition(".")[0]
    return int(number) if name.startswith("step-") and number.isdecimal() else 0
