"""How pytest-xdist shares the tests out over its processes: first the modules that share stacks, the largest before the others, each as a whole.

All other tests go one by one and fill what is left. The stacks have ended by then: an idle coordinator with its agents takes a twentieth of a core.
"""

from __future__ import annotations

from collections import Counter

import pytest
from xdist.scheduler import LoadScopeScheduling

TOGETHER = ("tests/e2e/", "tests/hostile/test_scripts.py")
#: Modules that share one more thing than a stack.
AS_ONE = "tests/e2e/simulated_cluster/"


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
    """Put what is run as a whole first, the largest number of tests before the others."""
    sizes = Counter(scope_of(item.nodeid) for item in items)
    items.sort(key=lambda item: (not item.nodeid.startswith(TOGETHER), -sizes[scope_of(item.nodeid)]))
