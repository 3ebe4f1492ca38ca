"""The process of the simulated nodes of MOCK_DB."""

from __future__ import annotations

import logging

import pytest

from paceline.api.mock import nodes


async def test_nodes_that_end_before_the_coordinator_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    async with nodes.simulation("http://127.0.0.1:9") as process:
        process.terminate()
        with caplog.at_level(logging.ERROR):
            await nodes.told_when_ended(process)
    assert "the simulated nodes have ended before the coordinator (exit code" in caplog.text
    assert "start the coordinator again" in caplog.text
