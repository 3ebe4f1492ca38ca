"""Numbers as sentences of an analysis write them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from paceline.cluster.experiments.findings import Estimate

_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def number(value: float) -> str:
    """Write a number with three significant digits, such as `1,230`, `4.56` or `2.1e-05`."""
    if value == 0:
        return "0"
    if 1000 <= abs(value) < 1e9:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}"


def percent(share: float) -> str:
    """Write a share as a percentage: `9 %`, and `0.4 %` where it is small."""
    hundreds = 100 * share
    return f"{hundreds:.1f} %" if 0 < abs(hundreds) < 0.95 else f"{hundreds:,.0f} %"


def size(count: float) -> str:
    """Write bytes in decimal units, such as `1.3 GB`."""
    for unit, name in _SIZES:
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count:.0f} B"


def parameters(count: float) -> str:
    """Write a number of parameters with two significant digits, such as `1.3 B`, `120 M` or `3,400`."""
    for unit, name in ((1e9, "B"), (1e6, "M")):
        if (scaled := float(f"{count:.2g}") / unit) >= 1:
            return f"{scaled:,.0f} {name}" if scaled >= 10 else f"{scaled:.1f} {name}"
    return f"{float(f'{count:.2g}'):,.0f}"


def duration(seconds: float) -> str:
    """Write seconds of a step, in `ms` or `µs` where they are short."""
    if seconds >= 1 or seconds == 0:
        return f"{number(seconds)} s"
    return f"{number(seconds * 1e3)} ms" if seconds >= 1e-3 else f"{number(seconds * 1e6)} µs"


def listed(words: Sequence[str], most: int = 4) -> str:
    """Write `a, b and c`; of a longer list the first ones and the number of the others."""
    if len(words) > most:
        words = [*words[: most - 1], f"{len(words) - most + 1} others"]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else "none"


def between(estimate: Estimate, write: Callable[[float], str] = number) -> str:
    """Write an estimate's interval as ` (between 3.1 and 3.4)`; nothing where there is none."""
    if estimate.low is None or estimate.high is None:
        return ""
    return f" (between {write(estimate.low)} and {write(estimate.high)})"
