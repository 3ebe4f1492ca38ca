"""What may be recorded: a step, a name, a value. Each check runs in the line of the caller, and says what is wrong and what to do.

No torch and no numpy in here: their scalars are known by what they can do (`__index__`, `item`).
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from paceline.monitoring.points import MAX_NAME_CHARACTERS, MAX_STEP


def checked_step(step: Any) -> int:
    """`step` as an int. Integers of numpy and torch count, truth values and fractions do not.

    Raises TypeError for what is no integer, ValueError for one outside 0 to MAX_STEP.
    """
    number = step if type(step) is int else _index_of(step)
    if not 0 <= number <= MAX_STEP:
        raise ValueError(f"step {_shown(number)} is not between 0 and {MAX_STEP}: count steps upwards from 0")
    return number


def _index_of(step: Any) -> int:
    try:
        if isinstance(step, bool) or str(getattr(step, "dtype", "")).endswith("bool"):
            raise TypeError("a truth value")
        return operator.index(step)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"step {_shown(step)} ({type(step).__name__}) is not an integer: pass a whole number, such as int(step)") from error


def checked_values(values: Mapping[str, Any], names: set[str]) -> dict[str, float]:
    """A copy of `values` as plain floats. `names`: those that have passed `check_name` before; new ones are added."""
    found: dict[str, float] = {}
    for name, value in values.items():
        if name not in names:
            check_name(name)
            names.add(name)
        found[name] = value if type(value) is float else checked_value(name, value)
    return found


def check_name(name: Any) -> None:
    """Check that `name` can be the name of a metric. Raises TypeError or ValueError."""
    if type(name) is not str:
        raise TypeError(f"metric name {_shown(name)} ({type(name).__name__}) is not text: use a str")
    if len(name) > MAX_NAME_CHARACTERS:
        raise ValueError(f"metric name {_shown(name)} has {len(name)} characters; the limit is {MAX_NAME_CHARACTERS}: use a shorter one")
    if not name.strip() or name != name.strip() or not name.isprintable():
        raise ValueError(
            f"metric name {_shown(name)} is empty, begins or ends with a space, or has characters that cannot be printed: use plain text"
        )


def checked_value(name: str, value: Any) -> float:
    """`value` as a float; NaN and the infinities are kept. A tensor is read, which waits for its device: that is the caller's choice.

    Raises TypeError for what is no single number, ValueError for an integer too large for a float.
    """
    try:
        number = value if isinstance(value, int | float) or not hasattr(value, "item") else value.item()
        if not hasattr(number, "__float__"):
            raise TypeError("no real number")
        return float(number)
    except OverflowError as error:
        raise ValueError(f"metric {name}: {_shown(value)} does not fit into a float: divide it first") from error
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"metric {name}: {_shown(value)} ({type(value).__name__}) is not one real number: pass a float, an int, or a tensor with one element"
        ) from error


def _shown(value: Any, limit: int = 60) -> str:
    """`value` as an error shows it: short, whatever it is."""
    if isinstance(value, int) and value.bit_length() > 4 * limit:
        return f"an integer of {value.bit_length()} bits"
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - a caller's own __repr__ may raise anything, and must not hide what is wrong
        return f"(repr raises {type(error).__name__})"
    return text if len(text) <= limit else f"{text[:limit]}…"
