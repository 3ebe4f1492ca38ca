"""What `auto` says of plans: why one was chosen, and what became of the others. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Protocol

from parallelism.plan import Degrees
from parallelism.planning.memory import Memory
from parallelism.planning.step_time import StepTime

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")

MORE = {
    "compute": "in computing",
    "recompute": "in computing activations again",
    "bubble": "in stages that wait for each other",
    "communication": "in waiting for messages",
    "update": "in updating parameters",
}


class Plan(Protocol):
    """What is said of a candidate."""

    @property
    def name(self) -> str: ...
    @property
    def memory(self) -> Memory: ...
    @property
    def time(self) -> StepTime: ...


def why(best: Plan, next_best: Plan | None, smallest_too_large: Plan | None, budget: int) -> str:
    """Two sentences."""
    needs = f"a rank needs {size(best.memory.total)} of {size(budget)} ({best.memory.moment})"
    fits = f"{sentence(best.name)}: {needs}, and a step should take {duration(best.time.total)}."
    if next_best is not None:
        return f"{fits} The next best that fits, {next_best.name}, {why_slower(next_best, best)}."
    if smallest_too_large is not None:
        needed = size(smallest_too_large.memory.total)
        return f"{fits} Nothing else fits: the smallest of the others, {smallest_too_large.name}, needs {needed}."
    return f"{fits} There is no other way to share out these ranks."


def why_slower(plan: Plan, best: Plan) -> str:
    """Names the part of the step that grows most."""
    more = {name: getattr(plan.time, name) - getattr(best.time, name) for name in MORE}
    part = max(more, key=lambda name: more[name])
    if more[part] <= 0:
        return f"would take as long and needs {size(plan.memory.total)}"
    return f"would take {duration(plan.time.total)}, {duration(more[part])} of it more {MORE[part]}"


def why_too_large(plan: Plan, budget: int) -> str:
    return f"needs {size(plan.memory.total)} {plan.memory.moment}, {size(plan.memory.total - budget)} more than there is"


def why_nothing(smallest: Plan, budget: int, ways_out: Sequence[str]) -> str:
    needs = f"needs {size(smallest.memory.total)} {smallest.memory.moment}"
    lacking = f"{size(smallest.memory.total - budget)} more than the {size(budget)} there is"
    return f"Nothing fits: the smallest plan, {smallest.name}, {needs}, {lacking}. It would fit with {' or '.join(ways_out)}."


def no_plan(global_batch_size: int, world_size: int, axes: Sequence[str], settled: Mapping[str, int]) -> str:
    given = "".join(f", with {axis}={count} as given" for axis, count in settled.items())
    return (
        f"global_batch_size={global_batch_size} cannot be shared out over {plural(world_size, 'rank')} along {', '.join(axes)}{given}; use "
        f"{world_size} or more samples, or fewer slots{', or leave those out' if settled else ''}"
    )


def degrees(sizes: Degrees) -> str:
    """`shard 4 x replicate 2`; axes of size one go without saying."""
    spoken = [f"{axis} {count}" for axis, count in asdict(sizes).items() if count > 1]
    return " x ".join(spoken) or "a single process"


def size(count: int) -> str:
    """`1.5 GiB`"""
    power = min(len(UNITS) - 1, max(0, count.bit_length() - 1) // 10)
    return f"{count / 1024**power:.1f} {UNITS[power]}" if power else f"{count} B"


def duration(seconds: float) -> str:
    """`41.3 ms`, with three significant digits."""
    if seconds >= 100:
        return f"{seconds:,.0f} s"
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
