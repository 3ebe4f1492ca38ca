"""The sentences that `auto` says about plans: why one was chosen, and what became of the others. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Protocol

from paceline.monitoring.words import plural
from paceline.parallelism.plan import Degrees
from paceline.parallelism.planning.memory import RankMemory
from paceline.parallelism.planning.step_time import StepTimeEstimate
from paceline.parallelism.words import duration, size

MORE = {
    "compute": "in computing",
    "recompute": "in computing activations again",
    "bubble": "in stages that wait for each other",
    "communication": "in waiting for messages",
    "update": "in updating parameters",
}


class DescribedPlan(Protocol):
    """A plan as the sentences need it."""

    @property
    def name(self) -> str: ...
    @property
    def memory(self) -> RankMemory: ...
    @property
    def time(self) -> StepTimeEstimate: ...


def why(best: DescribedPlan, next_best: DescribedPlan | None, smallest_too_large: DescribedPlan | None, budget: int) -> str:
    """Return two sentences: what the best plan needs and takes, and how the next one compares."""
    needs = f"a rank needs {size(best.memory.total)} of {size(budget)} ({best.memory.moment})"
    fits = f"{sentence(best.name)}: {needs}, and a step should take {duration(best.time.total)}."
    if next_best is not None:
        return f"{fits} The next best that fits, {next_best.name}, {why_slower(next_best, best)}."
    if smallest_too_large is not None:
        needed = size(smallest_too_large.memory.total)
        return f"{fits} Nothing else fits: the smallest of the others, {smallest_too_large.name}, needs {needed}."
    return f"{fits} There is no other way to share out these ranks."


def why_slower(plan: DescribedPlan, best: DescribedPlan) -> str:
    """Return why `plan` is not chosen though it fits, naming the part of the step that grows most."""
    more = {name: getattr(plan.time, name) - getattr(best.time, name) for name in MORE}
    part = max(more, key=lambda name: more[name])
    if more[part] <= 0:
        return f"would take as long and needs {size(plan.memory.total)}"
    return f"would take {duration(plan.time.total)}, {duration(more[part])} of it more {MORE[part]}"


def why_too_large(plan: DescribedPlan, budget: int) -> str:
    """Return how much memory `plan` needs, and how much more than there is."""
    return f"needs {size(plan.memory.total)} {plan.memory.moment}, {size(plan.memory.total - budget)} more than there is"


def why_nothing(smallest: DescribedPlan, budget: int, ways_out: Sequence[str]) -> str:
    """Return the sentences for when no plan fits, with the ways out."""
    needs = f"needs {size(smallest.memory.total)} {smallest.memory.moment}"
    lacking = f"{size(smallest.memory.total - budget)} more than the {size(budget)} there is"
    return f"Nothing fits: the smallest plan, {smallest.name}, {needs}, {lacking}. It would fit with {' or '.join(ways_out)}."


def no_plan(global_batch_size: int, world_size: int, axes: Sequence[str], fixed: Mapping[str, int]) -> str:
    """Return the message for when no plan can divide the global batch over the world."""
    given = "".join(f", with {axis}={count} as given" for axis, count in fixed.items())
    return (
        f"global_batch_size={global_batch_size} cannot be shared out over {plural(world_size, 'rank')} along {', '.join(axes)}{given}; use "
        f"{world_size} or more samples, or fewer slots{', or leave those out' if fixed else ''}"
    )


def degrees(sizes: Degrees) -> str:
    """Return the sizes as text, such as `shard 4 x replicate 2`. Axes of size one are left out."""
    in_words = [f"{axis} {count}" for axis, count in asdict(sizes).items() if count > 1]
    return " x ".join(in_words) or "a single process"


def sentence(text: str) -> str:
    """Return `text` with a capital first letter."""
    return text[:1].upper() + text[1:]
