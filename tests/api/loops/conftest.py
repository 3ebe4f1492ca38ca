"""What the tests of the loops share."""

from __future__ import annotations

import httpx
import pytest

from paceline.api.core.context import Services
from tests.api.loops.grown_pool import Grown
from tests.fake_provisioner import FakeProvisioner


@pytest.fixture
async def grown(services: Services, client: httpx.AsyncClient) -> Grown:
    return Grown(services, client, FakeProvisioner(), services.now())
