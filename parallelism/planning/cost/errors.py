"""What the cost model refuses, all of it `CostModelError`:

CostModelError
├── UnknownDeviceError     a device that the catalogue does not have
├── UnknownLinkError       a link that the catalogue does not have
└── TooFewTrialsError      measured trials that do not suffice for a fit
"""

from __future__ import annotations

from collections.abc import Iterable


class CostModelError(ValueError):
    """The cost model has no answer."""


class UnknownDeviceError(CostModelError):
    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(
            f"device {name!r} is not in the catalogue, and its speed is not guessed; add its data sheet's numbers to "
            f"parallelism/planning/cost/devices.py, or fit the model to measured trials. Known: {', '.join(known)}"
        )


class UnknownLinkError(CostModelError):
    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(
            f"link {name!r} is not in the catalogue, and its speed is not guessed; add its numbers to "
            f"parallelism/planning/cost/links.py. Known: {', '.join(known)}"
        )


class TooFewTrialsError(CostModelError):
    def __init__(self, found: int, needed: int) -> None:
        super().__init__(f"{found} different configurations were measured, and a fit needs {needed}; measure {needed - found} more")
