"""Into how many equal shards the sizes of a model can be divided. Pure and torch-free: plans are checked with it at submit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def explain_indivisible(sizes: Mapping[str, int], tensor: int) -> str | None:
    """Return what does not divide by `tensor` and the way out, or None if everything divides.

    `sizes`: by name, the sizes that the tensor axis shards.
    """
    for name, size in sizes.items():
        if size % tensor:
            return f"{name}={size} does not divide by tensor={tensor}; this model can be cut into tensor={in_words(common_divisors(sizes))}"
    return None


def common_divisors(sizes: Mapping[str, int]) -> list[int]:
    """Return every degree that divides all sizes, ascending."""
    return [degree for degree in range(1, min(sizes.values()) + 1) if all(size % degree == 0 for size in sizes.values())]


def in_words(numbers: Sequence[int]) -> str:
    """Return the numbers as text, such as "1, 2 or 4"."""
    *first, last = map(str, numbers)
    return f"{', '.join(first)} or {last}" if first else last
