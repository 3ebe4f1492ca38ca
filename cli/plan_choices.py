"""What `strategy: auto` chose, as a terminal tells it: the choice and its reason, then what became of the other plans."""

from __future__ import annotations

from cli import formats
from cli.output import table
from cli.views import PlanChoice, PlanOption


def chosen(choice: PlanChoice | None) -> list[tuple[str, str]]:
    if choice is None:
        return []
    return [("asked for", ", ".join(choice.asked)), ("chosen", choice.why), ("", choice.assumed)]


def rejected(choice: PlanChoice | None) -> list[str]:
    """A table, the chosen plan first; none where nobody asked us to choose."""
    if choice is None:
        return []
    rows = [_row(choice.chosen, "chosen"), *(_row(option, option.why) for option in choice.rejected)]
    more = [f"and {choice.not_told} more"] if choice.not_told else []
    return ["\n".join([table(["PLAN", "MEMORY A RANK", "STEP", "WHY NOT"], rows), *more])]


def _row(option: PlanOption, why: str) -> list[str]:
    return [option.name, formats.quantity(option.memory_bytes, "B"), f"{option.step_seconds:.3g} s", why]
