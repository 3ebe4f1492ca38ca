"""A job's faults: kills, stops, pauses and resizes drawn from a seed, each at a (rank, step, moment), and what the job made of them.

What follows is drawn as far as the next pause, since processes read their faults as they start; a pause is agreed on a step or
two later than it was asked for, and whatever follows is planned from the step that it came to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Literal

from paceline.training.link import Broken, Joined, PauseRequest, ProcessIdentity
from tests.faults import Fault, Moment, plan
from tests.gangs import Job, RankEnd, RunningGang
from tests.ranks import RANK_TIMEOUT_SECONDS
from tests.waiting import wait_until

FaultKind = Literal["kill", "stop", "resize", "pause"]

ALONE: tuple[Moment, ...] = ("data", "loss", "backward", "update")
TOGETHER: tuple[Moment, ...] = (*ALONE, "exchange", "gather", "news")
UNTIL_THE_EXCHANGE: tuple[Moment, ...] = ("data", "loss", "backward", "exchange")  # of two victims neither may get further
WORLDS = (1, 2, 2, 3, 3, 3, 4, 5)


@dataclass(frozen=True)
class Possible:
    """What may happen, and when in a step that ranks compute together: plain DDP has no exchange of its own."""

    kinds: Sequence[FaultKind]
    moments: Sequence[Moment] = TOGETHER


@dataclass(frozen=True)
class Event:
    kind: FaultKind
    faults: tuple[Fault, ...]
    stay: tuple[int, ...]  # ranks that live on in the next generation, in this order
    newcomers: int  # that join them; after a pause, all of the next start
    at_once: bool  # they are ordered there before they have noticed anything

    @property
    def earliest_next(self) -> int:
        """Whoever dies in the update may have let the others into the next step."""
        return self.faults[0].step + (2 if any(fault.moment == "update" for fault in self.faults) else 1)


@dataclass
class Roster:
    """Who is who: how each rank's process was born."""

    generation: int
    members: list[ProcessIdentity]

    @classmethod
    def of(cls, generation: int, world_size: int) -> Roster:
        return cls(generation, [ProcessIdentity(generation, rank) for rank in range(world_size)])

    def close_up(self, event: Event) -> None:
        self.generation += 1
        self.members = [self.members[rank] for rank in event.stay]
        self.members += [ProcessIdentity(self.generation, len(self.members) + number) for number in range(event.newcomers)]


def draw_event(draw: Random, roster: Roster, step: int, possible: Possible) -> Event:
    world, after = len(roster.members), draw.choice(WORLDS)
    kind: FaultKind = draw.choice(possible.kinds) if world > 1 else "pause"
    if kind == "pause":
        return Event(kind, hold(draw, roster, step, possible), (), after, at_once=True)
    if kind == "resize":
        stay = draw.sample(range(world), min(after, world) if after != world else world - 1)
        return Event(kind, hold(draw, roster, step, possible), tuple(stay), after - len(stay), at_once=True)
    victims = draw.sample(range(world), draw.choice((1, 1, 2)) if kind == "kill" and world > 2 else 1)
    moments = [moment for moment in possible.moments if len(victims) == 1 or moment in UNTIL_THE_EXCHANGE]
    name = "SIGKILL" if kind == "kill" else "SIGSTOP"
    faults = tuple(fault(roster, rank, step, name, draw.choice(moments)) for rank in victims)
    stay = [rank for rank in range(world) if rank not in victims]
    return Event(kind, faults, tuple(stay), max(0, after - len(stay)), at_once=kind == "stop" or draw.random() < 0.5)


def hold(draw: Random, roster: Roster, step: int, possible: Possible) -> tuple[Fault]:
    """One rank waits there until the others, or it, have been told."""
    world = len(roster.members)
    return (fault(roster, draw.randrange(world), step, "hold", draw.choice(possible.moments if world > 1 else ALONE)),)


def fault(roster: Roster, rank: int, step: int, kind: str, moment: Moment) -> Fault:
    born = roster.members[rank]
    return Fault(born.rank, step, kind, moment, generation=born.generation)


def until_a_pause(draw: Random, roster: Roster, committed: int, count: int, possible: Possible) -> Iterator[Event]:
    """At most `count` events after step `committed`; `roster` moves along."""
    earliest = committed + 1
    for _ in range(count):
        event = draw_event(draw, roster, earliest + draw.randint(0, 1), possible)
        yield event
        if event.kind == "pause":
            return
        earliest = event.earliest_next
        roster.close_up(event)


@dataclass
class RandomFaults:
    """Drives a job whose code is in `code` through `count` events."""

    job: Job
    code: Path
    seed: int
    count: int
    possible: Possible
    lived_through: list[Event] = field(default_factory=list)
    leaders: list[RankEnd] = field(default_factory=list)  # rank 0 of every generation

    def run(self) -> dict[int, float]:
        """The job's losses by step."""
        draw = Random(self.seed)
        world, committed, paused = draw.choice(WORLDS), 0, True
        while paused:
            roster = Roster.of(self.job.generation + 1, world)
            events = list(until_a_pause(draw, roster, committed, self.count - len(self.lived_through), self.possible))
            committed = self._start(world, events)
            self.lived_through += events
            paused = bool(events) and events[-1].kind == "pause"
            world = events[-1].newcomers if paused else 0
        return {step: loss for life in self.leaders for step, loss in life.curve("loss").items()}

    def _start(self, world: int, events: Sequence[Event]) -> int:
        """Live through these; the step that it came to."""
        plan(self.code, [fault for event in events for fault in event.faults])
        checkpoints = self.job.newest_first()
        first = self.job.generation + 1
        gang = self.job.start(world, restore_from=checkpoints, restore_required=bool(checkpoints))
        members = list(range(world))
        for event in events:
            members = self._meet(gang, members, event)
        ends = gang.wait()
        assert [end.exit_code for end in ends] == [0 if number in members else -9 for number in range(len(ends))], self._story(ends, events)
        self.leaders += [gang.left(generation, 0) for generation in range(first, self.job.generation + 1)]
        result = self.leaders[-1].result
        assert result is not None
        assert result.outcome == ("paused" if events and events[-1].kind == "pause" else "completed")
        return result.step

    def _meet(self, gang: RunningGang, members: list[int], event: Event) -> list[int]:
        """`members` are the processes' numbers by rank; the answer too."""
        print(self.job.generation, members, event, flush=True)  # shown where the test fails
        for fault in event.faults:
            wait_until((self.code / fault.done).exists, str(fault), seconds=RANK_TIMEOUT_SECONDS)
        if event.kind == "pause":
            self._pause(gang, members, event)
            return members
        if not event.at_once:
            for rank in event.stay:
                gang.agent.until(self.job.generation, rank, Broken)
        stay = [members[rank] for rank in event.stay]
        gang.close_up(*stay, newcomers=event.newcomers)
        for fault in event.faults:
            fault.release(self.code)
        gang.agent.until(self.job.generation, 0, Joined)
        for number in set(members) - set(stay):
            gang.processes[number].kill()
        return [*stay, *range(len(gang.processes) - event.newcomers, len(gang.processes))]

    def _pause(self, gang: RunningGang, members: list[int], event: Event) -> None:
        for number in members:
            gang.agent.ask(gang.identities[number], PauseRequest())
        for fault in event.faults:
            fault.release(self.code)

    def _story(self, ends: Sequence[RankEnd], events: Sequence[Event]) -> str:
        return "\n".join(
            [f"seed {self.seed}", *map(str, events), *(f"{number}: {end.exit_code}\n{end.output}" for number, end in enumerate(ends))]
        )
