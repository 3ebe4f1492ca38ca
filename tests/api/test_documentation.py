"""The documentation at /docs: pages that may run their own inline scripts and no others, and words where there is none."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from paceline.api.main import create_app
from paceline.api.settings import Settings
from tests.conftest import BASE_URL

PAGE = '<title>Paceline</title><script>start()</script><script type="application/json">{}</script><script src="a.js"></script>'


@pytest.fixture
def built(tmp_path: Path) -> Path:
    folder = tmp_path / "dist"
    (folder / "docs" / "reference").mkdir(parents=True)
    (folder / "index.html").write_text("<title>Dashboard</title>")
    (folder / "docs" / "index.html").write_text(PAGE)
    (folder / "docs" / "reference" / "rest.html").write_text("<title>REST</title>")
    (folder / "secret.html").write_text("secret")
    return folder


@pytest.fixture
async def browser(built: Path, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(Settings(data=tmp_path, dashboard=built))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=BASE_URL, follow_redirects=True) as client:
        yield client


def scripts_allowed(answer: httpx.Response) -> set[str]:
    rules = dict(rule.strip().partition(" ")[::2] for rule in answer.headers["content-security-policy"].split(";"))
    return set(rules["script-src"].split())


@pytest.mark.parametrize("path", ["/docs", "/docs/", "/docs/index.html"])
async def test_the_site_begins_at_docs_and_runs_its_own_inline_scripts_only(browser: httpx.AsyncClient, path: str) -> None:
    answer = await browser.get(path)
    digest = base64.b64encode(hashlib.sha256(b"start()").digest()).decode()
    assert (answer.status_code, answer.text) == (200, PAGE)
    assert scripts_allowed(answer) == {"'self'", f"'sha256-{digest}'"}


async def test_a_page_that_is_written_anew_has_new_rules(browser: httpx.AsyncClient, built: Path) -> None:
    before = scripts_allowed(await browser.get("/docs/index.html"))
    (built / "docs" / "index.html").write_text("<script>other()</script>")
    after = scripts_allowed(await browser.get("/docs/index.html"))
    assert len(after) == 2
    assert before != after


async def test_the_dashboard_s_own_pages_run_no_inline_script(browser: httpx.AsyncClient) -> None:
    assert scripts_allowed(await browser.get("/")) == {"'self'"}
    assert scripts_allowed(await browser.get("/docs/reference/rest.html")) == {"'self'"}


@pytest.mark.parametrize("path", ["/docs/nothing.html", "/docs/..%2fsecret.html", "/docs/reference"])
async def test_what_is_no_page_is_not_found(browser: httpx.AsyncClient, path: str) -> None:
    answer = await browser.get(path)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_a_checkout_without_the_site_says_how_to_build_it(browser: httpx.AsyncClient, built: Path) -> None:
    (built / "docs" / "index.html").unlink()
    answer = await browser.get("/docs")
    assert (answer.status_code, "make setup" in answer.text) == (503, True)
