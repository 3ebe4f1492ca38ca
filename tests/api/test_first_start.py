"""The first start hands out one link; later starts none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.deps import Services
from api.services import first_start
from tests.conftest import Connect


async def test_the_first_start_prints_a_link_that_signs_the_admin_in(
    services: Services, connect: Connect, capsys: pytest.CaptureFixture[str]
) -> None:
    await first_start.welcome(services)
    printed = capsys.readouterr().err
    token = printed.split("token=")[1].split()[0]
    async with connect() as client:
        me = await client.post("/api/v1/auth/login", json={"token": token})
    assert (me.json()["name"], me.json()["role"]) == ("admin", "admin")
    await first_start.welcome(services)
    assert capsys.readouterr().err == ""


async def test_a_coordinator_whose_output_goes_to_a_log_prints_no_login_link(
    services: Services, capsys: pytest.CaptureFixture[str]
) -> None:
    quiet = services.settings.model_copy(update={"print_login_link": False})
    await first_start.welcome(replace(services, settings=quiet))
    assert capsys.readouterr().err == ""
    await first_start.welcome(services)
    assert "token=" in capsys.readouterr().err  # nothing was made in silence that would keep a later start from saying it
