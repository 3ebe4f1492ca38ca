"""The end of an agent's channel."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from fastapi import FastAPI
from starlette.websockets import WebSocket

from paceline.api.core.context import Services
from paceline.api.websocket.agents import TRY_AGAIN_LATER, AgentChannel


async def test_a_channel_whose_agent_has_gone_first_is_closed_without_an_error(app: FastAPI, services: Services) -> None:
    async def receive() -> MutableMapping[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "websocket.close":
            raise OSError("the connection is gone")

    websocket = WebSocket({"type": "websocket", "path": "/", "headers": [], "app": app}, receive, send)
    await websocket.accept()
    await AgentChannel(websocket, services, "node").close(TRY_AGAIN_LATER, "the database is busy")
