"""Is a loss higher than it has been, by more than its scatter explains? Told by windows of steps, one after the other. Pure."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import deque
from collections.abc import Sequence

#: Windows whose lowest level a loss is compared with. Of all windows of a long job the lowest would be so by chance alone.
COMPARED = 64
#: Standard errors by which two levels must differ, to differ for certain: one of them is the lowest of many.
CERTAIN = 4.0
#: The share of the lowest level by which a loss must be above it.
SHARE = 0.05
#: Windows in a row that must be higher. The scatter of a few steps is known badly, and one batch may be a hard one.
IN_A_ROW = 2
#: Steps from which the scatter is told.
STEPS = 256
#: The standard error of a median, in standard errors of a mean (of normally distributed values).
OF_MEDIAN = math.sqrt(math.pi / 2)
#: A normal distribution's standard deviation, in medians of the absolute difference of two values.
OF_DIFFERENCE = 1.4826 / math.sqrt(2)


class LossLevel:
    """The levels that the loss of a job has had, by the medians of windows, and how much it scatters from step to step."""

    def __init__(self) -> None:
        self._levels: deque[tuple[float, int]] = deque([(math.inf, 1)], maxlen=COMPARED)  # and the steps of each
        self._differences: deque[float] = deque(maxlen=STEPS)  # of neighbouring steps: a loss that falls scatters no more for it
        self._higher = 0  # windows in a row

    def rises(self, losses: Sequence[float]) -> bool:
        """Add a window of finite losses, at least two. Returns whether it is the IN_A_ROW-th in a row that is higher than the lowest one."""
        self._differences.extend(abs(after - before) for before, after in itertools.pairwise(losses))
        lowest, its_steps = min(self._levels)
        level, steps = statistics.median(losses), len(losses)
        scatter = OF_DIFFERENCE * statistics.median(self._differences)
        doubt = OF_MEDIAN * scatter * math.sqrt(1 / steps + 1 / its_steps)
        is_higher = level > lowest + max(CERTAIN * doubt, SHARE * abs(lowest))
        self._higher = self._higher + 1 if is_higher else 0
        self._levels.append((level, steps))
        return self._higher >= IN_A_ROW
