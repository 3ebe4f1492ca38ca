"""How pytest-xdist shares the tests out over its processes: first the modules that share stacks, the largest before the others, each as a whole.

All other tests go one by one and fill what is left: those that compute among those that wait for clocks and processes, of which two at a time leave a
third of the cores idle. The stacks have ended by then: an idle coordinator with its agents takes a twentieth of a core.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

import pytest
from xdist.scheduler import LoadScopeScheduling

T = TypeVar("T")
TOGETHER = ("tests/e2e/", "tests/hostile/test_scripts.py")
#: Modules that share one more thing than a stack.
AS_ONE = "tests/e2e/simulated_cluster/"

#: Folders whose tests keep the cores busy.
COMPUTING = tuple(f"tests/{each}/" for each in ("distributed", "paceline/integrations", "parallelism", "scripts", "training"))


class LongModulesFirst(LoadScopeScheduling):
    """Hands the tests out in the order in which they were collected, see `order`; `--no-loadscope-reorder` leaves it as it is."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


def scope_of(nodeid: str) -> str:
    """What one process runs as a whole: a test, or all of a module or of a folder."""
    if nodeid.startswith(AS_ONE):
        return AS_ONE
    return nodeid.partition("::")[0] if nodeid.startswith(TOGETHER) else nodeid


def order(items: list[pytest.Item]) -> None:
    """Put what is run as a whole first, the largest number of tests before the others, then the tests that compute among those that wait."""
    sizes = Counter(scope_of(item.nodeid) for item in items)
    together = [item for item in items if item.nodeid.startswith(TOGETHER)]
    computing = [item for item in items if item.nodeid.startswith(COMPUTING) and not item.nodeid.startswith(TOGETHER)]
    waiting = [item for item in items if not item.nodeid.startswith((*TOGETHER, *COMPUTING))]
    items[:] = [*sorted(together, key=lambda item: -sizes[scope_of(item.nodeid)]), *interleaved(computing, waiting)]


def interleaved(first: Sequence[T], second: Sequence[T]) -> list[T]:
    """Merge two lists, each in its own order, so that at any place as large a part of the one as of the other has come."""
    placed = [((index + 0.5) / len(each), item) for each in (first, second) for index, item in enumerate(each)]
    return [item for _, item in sorted(placed, key=lambda found: found[0])]
