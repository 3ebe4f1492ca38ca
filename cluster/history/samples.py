"""The audit of samples, exactly once: the places of the endless line of samples that the committed steps used, and those used twice or
not at all. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

#: Findings of one kind that are told one by one.
TOLD = 20
#: Epochs that are told one by one: the newest.
MOST_EPOCHS = 1_000


@dataclass(frozen=True)
class SampleUse:
    """One committed step's use of `count` places from `first` on."""

    generation: int
    step: int
    first: int
    count: int


@dataclass(frozen=True)
class SampleSpan:
    generation: int
    first_step: int
    last_step: int
    first: int
    count: int

    @property
    def end(self) -> int:
        return self.first + self.count


@dataclass(frozen=True)
class EpochTally:
    epoch: int
    used: int
    duplicates: int


@dataclass(frozen=True)
class Audit:
    ranges: tuple[SampleSpan, ...]
    steps: int
    samples: int
    duplicates: int
    missing: int
    epochs: tuple[EpochTally, ...]
    findings: tuple[str, ...]

    @property
    def exactly_once(self) -> bool:
        return not self.findings


def extend(ranges: list[SampleSpan], use: SampleUse) -> None:
    """Add a use to the ranges. Steps that follow each other in one generation and in the line become one range; `use` comes in order of
    steps."""
    last = ranges[-1] if ranges else None
    if last and (use.generation, use.step, use.first) == (last.generation, last.last_step + 1, last.end):
        ranges[-1] = replace(last, last_step=use.step, count=last.count + use.count)
    else:
        ranges.append(SampleSpan(use.generation, use.step, use.step, use.first, use.count))


def audit(ranges: Sequence[SampleSpan], *, begins_at: int | None, epoch_samples: int | None) -> Audit:
    """Audit the uses of a job. `begins_at`: the place where the line should begin; None: wherever the first step did (a job restored
    from another one)."""
    findings = [*_step_findings(ranges)]
    used = sorted((each.first, each.end) for each in ranges)
    start = begins_at if begins_at is not None else (used[0][0] if used else 0)
    skipped, doubled = sweep(used, start)
    findings += _described("never used", skipped) + _described("used more than once", doubled)
    return Audit(
        ranges=tuple(ranges),
        steps=sum(each.last_step - each.first_step + 1 for each in ranges),
        samples=sum(each.count for each in ranges),
        duplicates=sum(end - first for first, end in doubled),
        missing=sum(end - first for first, end in skipped),
        epochs=tuple(by_epoch(used, doubled, epoch_samples)) if epoch_samples else (),
        findings=tuple(findings),
    )


def sweep(used: Sequence[tuple[int, int]], start: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(places skipped, places used again, once for each further use), as (first, end); `used` in order."""
    skipped: list[tuple[int, int]] = []
    doubled: list[tuple[int, int]] = []
    reached = start
    for first, end in used:
        if first > reached:
            skipped.append((reached, first))
        if first < reached:
            doubled.append((first, min(end, reached)))
        reached = max(reached, end)
    return skipped, doubled


def by_epoch(used: Sequence[tuple[int, int]], doubled: Sequence[tuple[int, int]], size: int) -> list[EpochTally]:
    """The use of places in the newest MOST_EPOCHS epochs that have any."""
    newest = max((end - 1) // size for _, end in used) if used else 0
    oldest = max(newest - MOST_EPOCHS + 1, min((first // size for first, _ in used), default=0))
    uses, again = _per_epoch(used, size, oldest, newest), _per_epoch(doubled, size, oldest, newest)
    return [EpochTally(oldest + at, count - twice, twice) for at, (count, twice) in enumerate(zip(uses, again, strict=True)) if count]


def _per_epoch(spans: Iterable[tuple[int, int]], size: int, oldest: int, newest: int) -> list[int]:
    """How many places the spans have in each of these epochs. A span costs the same however many epochs it covers."""
    parts = [0] * (newest - oldest + 1)
    covered = [0] * (newest - oldest + 2)  # by how much more spans the whole epoch is covered than the one before it
    for begin, end in spans:
        first = max(begin, oldest * size)
        if first >= end:
            continue
        low, high = first // size, (end - 1) // size
        if low == high:
            parts[low - oldest] += end - first
            continue
        parts[low - oldest] += (low + 1) * size - first
        parts[high - oldest] += end - high * size
        covered[low + 1 - oldest] += 1
        covered[high - oldest] -= 1
    return [part + whole * size for part, whole in zip(parts, accumulate(covered), strict=False)]


def _step_findings(ranges: Sequence[SampleSpan]) -> list[str]:
    found = []
    for one, other in pairwise(ranges):
        if other.first_step > one.last_step + 1:
            found.append(
                f"{spelled('step', one.last_step + 1, other.first_step)}: no rank reported which samples {_pronoun(one, other)} used"
            )
        elif other.first != one.end:
            found.append(f"step {other.first_step} begins at place {other.first}, not at {one.end} where step {one.last_step} ended")
    return _at_most(found)


def _pronoun(one: SampleSpan, other: SampleSpan) -> str:
    return "it" if other.first_step == one.last_step + 2 else "they"


def _described(what: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    return _at_most([f"{spelled('place', first, end)} {'was' if end == first + 1 else 'were'} {what}" for first, end in spans])


def spelled(noun: str, first: int, end: int) -> str:
    return f"{noun} {first}" if end == first + 1 else f"{noun}s {first} to {end - 1}"


def _at_most(found: list[str]) -> list[str]:
    return found if len(found) <= TOLD else [*found[:TOLD], f"and {len(found) - TOLD} more of this kind"]
