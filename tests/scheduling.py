"""How pytest-xdist shares the tests out over its processes."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

TOGETHER = ("tests/e2e/", "tests/hostile/test_scripts.py")


class LongModulesFirst(LoadScopeScheduling):
    """Tests that share a stack by module, before all others, which go one by one and fill what is left."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0] if nodeid.startswith(TOGETHER) else nodeid
