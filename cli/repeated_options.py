"""Options that may be given several times, each with a name and a value: `--env`, `--label`, `--set`."""

from __future__ import annotations

from collections.abc import Iterable

from paceline.cli.errors import UsageProblem


def by_name(option: str, pairs: Iterable[tuple[str, str]], way_out: str) -> dict[str, str]:
    """The values by name. Raises UsageProblem for a name with two values, of which one would be dropped."""
    found: dict[str, str] = {}
    for name, value in pairs:
        if found.setdefault(name, value) != value:
            raise UsageProblem(f"{option} {name} is given twice, as {found[name]!r} and {value!r}", way_out)
    return found
