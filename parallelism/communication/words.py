"""The sentence that says how gradients are summed, and why. Pure."""

from __future__ import annotations

from paceline.parallelism.communication.choices import ReductionChoice
from paceline.parallelism.communication.sum_cost import Links, MeasuredLink
from paceline.parallelism.communication.trial import Verdict
from paceline.parallelism.words import duration


def why(verdict: Verdict) -> str:
    """Return what was decided, with the numbers that decided it."""
    taken, measured, default = verdict.taken, verdict.measured, verdict.options[0]
    match verdict.why:
        case "faster":
            less = f"a step takes {duration(measured[taken])} instead of {duration(measured[default])}"
            return f"{taken.name}: {less}, of which {duration(verdict.waited)} were waited for sums{_price(taken)}"
        case "nothing_to_gain":
            waits = f"{duration(verdict.waited)} of a step of {duration(measured[default])} are waited for sums"
            return f"{taken.name}: {waits}, and {_nothing_else(verdict)}"
        case "not_faster":
            tried = min((each for each in measured if each != default), key=lambda each: measured[each])
            took = f"the best of it ({tried.name}) takes {duration(measured[tried])} a step, this {duration(measured[taken])}"
            return f"{taken.name}: nothing that was tried saves enough; {took}, and {_must_save(tried, beside=taken)}"
        case "no_longer_faster":
            before = verdict.before or taken
            took = f"a step takes {duration(measured[taken])}, and {duration(measured[before])} if it is done {before.name}"
            return f"{taken.name} again: {took}, and {_must_save(before, beside=taken)}"
        case "loss":
            before = verdict.before or taken
            if verdict.slower:
                falls = f"the loss falls by {100 * verdict.slower.per_step:.2g} in 100 steps, and by {100 * verdict.slower.by_default:.2g}"
                return f"{taken.name} again: done {before.name}, {falls} {verdict.options[0].name}"
            return (
                f"{taken.name} again: done {before.name}, the loss was higher than it had been, and it leaves out a part of each gradient"
            )


def _nothing_else(verdict: Verdict) -> str:
    if len(verdict.options) > 1:
        return "no other way is predicted to save enough of that"
    return "other sizes of buckets could save too little of that" if verdict.has_buckets else "there is no other way on these machines"


def _must_save(choice: ReductionChoice, beside: ReductionChoice) -> str:
    """Return the share of a step that `choice` must save to be taken instead of `beside`, which may have had to save something itself."""
    what = "another way" if choice.compression == beside.compression else f"what is {_kind(choice)}"
    return f"{what} must save {100 * (1 - (1 - choice.worth) / (1 - beside.worth)):.2g}%"


def _price(choice: ReductionChoice) -> str:
    """Return what a choice costs beside its time."""
    kept = f"; what is {_kind(choice)} learns slower per step: a part of each gradient comes later"
    return kept if choice.is_lossy else ""


def _kind(choice: ReductionChoice) -> str:
    return "lossy" if choice.is_lossy else "exact" if choice.compression == "none" else "rounded"


def links(found: Links) -> str:
    """Return links as text, such as `measured: 94.1 Mbit/s and 310 µs between machines`."""
    told = [_link(name, link) for name, link in (("between machines", found.between), ("within a machine", found.within)) if link]
    return f"measured: {', '.join(told) or 'no link by itself'}"


def _link(name: str, link: MeasuredLink) -> str:
    return f"{bit_rate(link.bytes_per_second)} and {duration(link.latency_seconds)} {name}"


def bit_rate(bytes_per_second: float) -> str:
    """Return a rate in the units that networks are sold in."""
    bits = 8 * bytes_per_second
    return f"{bits / 1e9:.3g} Gbit/s" if bits >= 1e9 else f"{bits / 1e6:.3g} Mbit/s"
