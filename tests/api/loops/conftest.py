"""What the tests of the loops share."""

from __future__ import annotations

import httpx
import pytest
from fastapi import FastAPI

from paceline.api.core.context import Services
from tests import factories
from tests.api.loops.grown_pool import Grown
from tests.fake_provisioner import FakeProvisioner


@pytest.fixture
async def grown(app: FastAPI, services: Services, client: httpx.AsyncClient) -> Grown:
    """Its loops and its requests have one clock, which stands far from the end of a month: hours of nodes are counted by the month."""
    grown = Grown(services, client, FakeProvisioner(), factories.START)
    app.state.services = grown.services
    return grown
