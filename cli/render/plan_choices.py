"""The choice of `strategy: auto` on a terminal: the plan and its reason, then the other plans with theirs."""

from __future__ import annotations

from paceline.cli.api_types import PlanChoice, PlanOption
from paceline.cli.render import formats
from paceline.cli.render.output import table


def chosen(choice: PlanChoice | None) -> list[tuple[str, str]]:
    if choice is None:
        return []
    return [("asked for", ", ".join(choice.asked)), ("chosen", choice.why), ("", choice.assumed)]


def rejected(choice: PlanChoice | None) -> list[str]:
    """A table of the plans, the chosen one first; none where the user named a strategy."""
    if choice is None:
        return []
    rows = [_row(choice.chosen, "chosen"), *(_row(option, option.why) for option in choice.rejected)]
    more = [f"and {choice.not_told} more"] if choice.not_told else []
    return ["\n".join([table(["PLAN", "MEMORY A RANK", "STEP", "WHY NOT"], rows), *more])]


def _row(option: PlanOption, why: str) -> list[str]:
    return [option.name, formats.quantity(option.memory_bytes, "B"), f"{option.step_seconds:.3g} s", why]
