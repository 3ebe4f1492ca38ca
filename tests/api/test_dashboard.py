"""The built dashboard, the exposition and the published document."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from paceline.api.core.context import Services
from paceline.api.main import create_app
from paceline.api.openapi import document
from paceline.api.settings import Settings
from paceline.cluster.states import JobState
from tests import factories
from tests.conftest import BASE_URL


@pytest.fixture
def built(tmp_path: Path) -> Path:
    folder = tmp_path / "dist"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<title>Paceline</title>")
    (folder / "assets" / "app.js").write_text("go()")
    (tmp_path / "secret.txt").write_text("secret")
    return folder


@pytest.fixture
async def browser(built: Path, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    """Static files need no database, so the app is not even started."""
    app = create_app(Settings(data=tmp_path, dashboard=built))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=BASE_URL) as client:
        yield client


async def test_every_page_is_the_index_and_files_are_themselves(browser: httpx.AsyncClient) -> None:
    for path in ("/", "/login", "/jobs/01ABC"):
        page = await browser.get(path)
        assert (page.status_code, page.text, page.headers["cache-control"]) == (200, "<title>Paceline</title>", "no-cache")
    script = await browser.get("/assets/app.js")
    assert (script.text, "immutable" in script.headers["cache-control"]) == ("go()", True)


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [("gzip, deflate, br, zstd", "br"), ("gzip", "gzip"), ("br;q=0, gzip;q=0.5", "gzip"), ("identity", None)],
)
async def test_the_build_s_compressed_copies_are_sent_to_browsers_that_take_them(
    browser: httpx.AsyncClient, built: Path, accepted: str, encoding: str | None
) -> None:
    script = b"go();" * 1000
    (built / "assets" / "app.js").write_bytes(script)
    (built / "assets" / "app.js.gz").write_bytes(gzip.compress(script, mtime=0))
    (built / "assets" / "app.js.br").write_bytes(b"brotli")
    async with browser.stream("GET", "/assets/app.js", headers={"Accept-Encoding": accepted}) as answer:
        sent = b"".join([part async for part in answer.aiter_raw()])
    assert answer.headers.get("content-encoding") == encoding
    assert sent == {"br": b"brotli", "gzip": gzip.compress(script, mtime=0), None: script}[encoding]
    assert answer.headers["content-type"].startswith("text/javascript")
    assert (answer.headers["vary"], "immutable" in answer.headers["cache-control"]) == ("Accept-Encoding", True)


@pytest.mark.parametrize("path", ["/assets/missing.js", "/api/v2/jobs", "/%2e%2e/secret.txt", "/assets/%2e%2e/%2e%2e/secret.txt"])
async def test_what_is_not_there_is_not_found(browser: httpx.AsyncClient, path: str) -> None:
    answer = await browser.get(path)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_pages_run_scripts_of_their_own_only_and_data_runs_none(browser: httpx.AsyncClient) -> None:
    page = (await browser.get("/jobs/01ABC")).headers["content-security-policy"]
    assert "default-src 'self'" in page
    assert "script-src 'self';" in page
    assert "frame-ancestors 'none'" in page
    data = (await browser.get("/api/v2/x")).headers["content-security-policy"]
    assert "sandbox" in data
    assert "default-src 'none'" in data


@pytest.mark.parametrize(
    ("base", "kept"), [("https://paceline.example", True), ("https://localhost", False), ("http://127.0.0.1:8000", False)]
)
async def test_only_tls_under_a_name_of_its_own_is_asked_for_ever_after(built: Path, tmp_path: Path, base: str, kept: bool) -> None:
    """Of localhost it would hold for every other port, too."""
    app = create_app(Settings(data=tmp_path, dashboard=built, allowed_hosts="paceline.example"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=base) as client:
        assert ("strict-transport-security" in (await client.get("/")).headers) == kept


async def test_what_carries_secrets_is_not_kept_by_browsers(client: httpx.AsyncClient) -> None:
    made = await client.post("/api/v1/keys", json={"name": "laptop"})
    for answer in (made, await client.get("/api/v1/auth/me"), await client.post("/api/v1/cluster/nodes", json={})):
        assert (answer.is_success, answer.headers["cache-control"]) == (True, "no-store")


@pytest.mark.parametrize("path", ["/assets/%00", "/assets/" + "a" * 300, "/" + "a" * 3000, "/" + "a/" * 3000])
async def test_a_path_that_no_file_can_have_is_not_there(browser: httpx.AsyncClient, path: str) -> None:
    answer = await browser.get(path)
    assert answer.status_code in (200, 400, 404)
    assert (answer.status_code == 400) == ("%00" in path)


async def test_an_unbuilt_dashboard_says_what_to_do(browser: httpx.AsyncClient, built: Path) -> None:
    (built / "index.html").unlink()
    answer = await browser.get("/")
    assert answer.status_code == 503
    assert "npm run build" in answer.text


async def test_the_exposition_counts_by_state(client: httpx.AsyncClient, services: Services) -> None:
    async with services.write() as session:
        await factories.create_node(session)
        await factories.create_job(session, state=JobState.RUNNING)
    text = (await client.get("/metrics")).text
    assert 'paceline_jobs{state="running"} 1.0' in text
    assert 'paceline_nodes{state="ready"} 1.0' in text
    assert "paceline_metric_records_total 0.0" in text


def test_the_document_names_operations_like_functions_and_hides_the_agents_doors(tmp_path: Path) -> None:
    published = document(create_app(Settings(data=tmp_path)))
    operations = [operation for methods in published["paths"].values() for operation in methods.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(names) == len(set(names))
    assert {"submit_job", "job_metrics", "list_events"} <= set(names)
    assert not any("agents" in path for path in published["paths"])
    assert all("422" not in operation["responses"] for operation in operations)
