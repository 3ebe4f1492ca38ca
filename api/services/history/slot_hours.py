"""The slot-hours of jobs, over all generations: the ranks of earlier ones are deleted some time after a job's end."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from paceline.db.repositories.trial_slots import GenerationSpan


def slot_hours(generations: Sequence[GenerationSpan], held: Mapping[int, int], now: datetime) -> float:
    """Return slots times hours. `held`: the number of slots by generation. One whose ranks are no longer kept had as many as its world; others may
    have had spare ones besides."""
    return sum(seconds(each, now) * max(each.world_size, held.get(each.generation, 0)) for each in generations) / 3600


def are_ranks_kept(generations: Sequence[GenerationSpan], kept: Collection[int], now: datetime) -> bool:
    """Whether the ranks of every generation that lasted are among those kept, so that a sum over ranks is a sum over all."""
    return all(each.generation in kept for each in generations if seconds(each, now) > 0)


def seconds(generation: GenerationSpan, now: datetime) -> float:
    """Return how long a generation has lasted."""
    return max(0.0, ((generation.ended_at or now) - generation.started_at).total_seconds())
