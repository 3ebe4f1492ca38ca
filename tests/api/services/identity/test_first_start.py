"""The first start hands out one link; later starts none."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from paceline.api.core.context import Services
from paceline.api.services.identity import first_start
from paceline.api.settings import Settings
from tests.conftest import Connect

NOON = datetime(2026, 11, 24, 12, 0, tzinfo=UTC)


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


@pytest.mark.parametrize(
    ("command", "port"),
    [
        (["uvicorn", "paceline.api.main:app", "--port", "9000", "--reload"], 9000),
        (["uvicorn", "--port=9001", "paceline.api.main:app"], 9001),
        (["uvicorn", "paceline.api.main:app"], None),
        (["uvicorn", "paceline.api.main:app", "--port"], None),
        (["uvicorn", "paceline.api.main:app", "--port", "0"], None),
        (["uvicorn", "paceline.api.main:app", "--port", "x"], None),
    ],
)
def test_the_port_is_that_of_the_command_line(command: list[str], port: int | None) -> None:
    assert first_start.port_of(command) == port


@pytest.mark.parametrize(
    ("words", "host"),
    [
        ([], "127.0.0.1"),
        (["--host", "0.0.0.0"], "127.0.0.1"),
        (["--host", "10.0.0.1", "--host=127.0.0.1"], "127.0.0.1"),
        (["--host=10.0.0.1"], "10.0.0.1"),
        (["--host"], "127.0.0.1"),
    ],
)
def test_the_address_is_one_that_it_listens_on(words: list[str], host: str) -> None:
    """With `--host 10.0.0.1` the link led to loopback, where nothing listens."""
    assert first_start.host_of(["serve", *words, "--port", "8000"]) == host


async def test_the_link_names_the_port_that_uvicorn_listens_on(
    services: Services, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It was always 8000."""
    monkeypatch.setattr("sys.argv", ["uvicorn", "paceline.api.main:app", "--port", "9123"])
    (tmp_path / "index.html").touch()  # built: else the link is to the port of `npm run dev`
    settings = services.settings.model_copy(update={"public_url": "", "dashboard": tmp_path})
    await first_start.welcome(replace(services, settings=settings))
    assert "http://127.0.0.1:9123/login?token=" in capsys.readouterr().err


def test_who_needs_no_link_is_told_an_address_where_a_dashboard_is_served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """MOCK_DB named its own, which answered 503 where nothing was built."""
    monkeypatch.setattr("sys.argv", ["uvicorn", "--port", "9123"])
    settings = Settings(data=tmp_path, dashboard=tmp_path, public_url="")
    assert first_start.dashboard_address(settings).startswith("http://localhost:3000, while npm run dev is at work")
    (tmp_path / "index.html").touch()
    assert first_start.dashboard_address(settings) == "http://127.0.0.1:9123"
    public = settings.model_copy(update={"public_url": "https://paceline.example"})
    assert first_start.dashboard_address(public) == "https://paceline.example"


async def test_a_coordinator_whose_output_goes_to_a_log_prints_no_login_link(
    services: Services, capsys: pytest.CaptureFixture[str]
) -> None:
    quiet = services.settings.model_copy(update={"print_login_link": False})
    await first_start.welcome(replace(services, settings=quiet))
    assert capsys.readouterr().err == ""
    await first_start.welcome(services)
    assert "token=" in capsys.readouterr().err  # nothing was made in silence that would keep a later start from saying it


@pytest.mark.parametrize(
    ("public_url", "is_built", "base"),
    [
        ("", True, "http://127.0.0.1:8000"),
        ("", False, "http://localhost:3000"),
        ("https://paceline.example", False, "https://paceline.example"),
    ],
)
def test_the_link_names_an_address_where_a_dashboard_is_served(public_url: str, is_built: bool, base: str) -> None:
    """Where none was built, it led to a page that said so."""
    lines = first_start.greeting(public_url, "http://127.0.0.1:8000", "lt_x", NOON, is_built=is_built)
    (link,) = (line for line in lines if "lt_x" in line)
    assert link.endswith(f": {base}/login?token=lt_x")
    assert ("npm run dev" in "\n".join(lines)) is (base == first_start.DEV_SERVER)
