"""Into how many equal parts sizes can be cut. Pure and torch-free: plans are refused for it at submit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def why_not_divided(sizes: Mapping[str, int], tensor: int) -> str | None:
    """What does not divide, by what, and the way out; None: everything does. `sizes`: what the tensor axis cuts, by its name."""
    for name, size in sizes.items():
        if size % tensor:
            return f"{name}={size} does not divide by tensor={tensor}; this model can be cut into tensor={spoken(common_divisors(sizes))}"
    return None


def common_divisors(sizes: Mapping[str, int]) -> list[int]:
    """Every degree that all sizes allow, ascending."""
    return [degree for degree in range(1, min(sizes.values()) + 1) if all(size % degree == 0 for size in sizes.values())]


def spoken(numbers: Sequence[int]) -> str:
    *first, last = map(str, numbers)
    return f"{', '.join(first)} or {last}" if first else last
