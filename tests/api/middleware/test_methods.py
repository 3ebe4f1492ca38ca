"""Methods: HEAD is answered wherever GET is, and a refused method names the ones that are taken."""

from __future__ import annotations

import httpx
import pytest

from tests.conftest import Connect

JOBS = "/api/v1/training/jobs"


@pytest.mark.parametrize("path", ["/healthz", "/metrics", JOBS, "/api/v1/openapi.json"])
async def test_head_answers_as_get_does_without_the_body(client: httpx.AsyncClient, path: str) -> None:
    head, get = await client.head(path), await client.get(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == get.headers["content-type"]
    assert int(head.headers["content-length"]) > 0


async def test_head_needs_an_identity_where_get_does(connect: Connect) -> None:
    async with connect() as stranger:
        assert (await stranger.head(JOBS)).status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("OPTIONS", JOBS, "GET, HEAD, POST"),
        ("PUT", JOBS, "GET, HEAD, POST"),
        ("OPTIONS", "/api/v1/training/jobs/x", "DELETE, GET, HEAD, PATCH"),
        ("GET", "/api/v1/training/plan", "POST"),
        ("GET", "/api/v1/nonsense", None),
        ("GET", "/api", None),
        ("POST", "/api/v1/nonsense", None),
        ("DELETE", "/jobs", "GET, HEAD"),
    ],
)
async def test_a_refused_method_names_all_that_the_path_takes(client: httpx.AsyncClient, method: str, path: str, allow: str | None) -> None:
    answer = await client.request(method, path)
    assert answer.status_code == (405 if allow else 404)
    assert answer.headers.get("allow") == allow
    assert answer.json()["code"] == ("method_not_allowed" if allow else "not_found")
    assert (allow or "no such endpoint") in answer.json()["detail"]


async def test_the_api_describes_itself_to_signed_in_users(client: httpx.AsyncClient, connect: Connect) -> None:
    document = (await client.get("/api/v1/openapi.json")).json()
    assert document["openapi"].startswith("3.")
    assert "/api/v1/training/jobs" in document["paths"]
    async with connect() as stranger:
        assert (await stranger.get("/api/v1/openapi.json")).status_code == 401
