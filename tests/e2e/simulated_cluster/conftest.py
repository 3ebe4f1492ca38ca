"""One simulated cluster for all that look at its pages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.simulated_cluster.simulation import Simulated, simulation


@pytest.fixture(scope="package")
def simulated() -> Iterator[Simulated]:
    """With demo jobs at every stage, for which it takes a minute and a half; it takes half a core as long as it is there. Tests may use its
    jobs up."""
    with simulation() as found:
        yield found
