"""The log of a coordinator with MOCK_DB tells of the developer's requests."""

from __future__ import annotations

import logging

import pytest

from paceline.api.mock.access_log import without_nodes

REQUEST, CHANNEL = '%s - "%s %s HTTP/%s" %d', '%s - "WebSocket %s" [accepted]'
HERE = "127.0.0.1:40000"


def say_everything() -> None:
    access, other = logging.getLogger("uvicorn.access"), logging.getLogger("uvicorn.error")
    access.info(REQUEST, HERE, "POST", "/api/v1/agents/upload?batch=1", "1.1", 200)
    access.info(REQUEST, HERE, "GET", "/api/v1/training/jobs", "1.1", 200)
    other.info(CHANNEL, HERE, "/api/v1/agents/channel")
    other.info(CHANNEL, HERE, "/api/v1/events/stream")
    other.info("connection open")
    other.info("Application startup complete.")


def test_requests_and_channels_of_nodes_are_left_out_until_the_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "uvicorn.access")
    caplog.set_level(logging.INFO, "uvicorn.error")
    with without_nodes():
        say_everything()
    assert [record.getMessage() for record in caplog.records] == [
        f'{HERE} - "GET /api/v1/training/jobs HTTP/1.1" 200',
        f'{HERE} - "WebSocket /api/v1/events/stream" [accepted]',
        "Application startup complete.",
    ]
    caplog.clear()
    say_everything()
    assert len(caplog.records) == 6
