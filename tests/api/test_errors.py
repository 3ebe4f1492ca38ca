"""Problems: RFC 9457, a stable code, the value, the limit and the way out; never a stack trace."""

from __future__ import annotations

import ast
import asyncio
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from paceline.api.errors import CATALOGUE, ProblemError
from paceline.api.field_errors import pointer
from paceline.api.problems import MEDIA_TYPE
from tests.conftest import Connect

ROOT = Path(__file__).parents[2]


async def test_a_problem_has_every_member(client: httpx.AsyncClient) -> None:
    answer = await client.get("/api/v1/metrics/jobs/nothing")
    document = answer.json()
    assert answer.headers["content-type"] == MEDIA_TYPE
    assert set(document) == {"type", "title", "status", "detail", "instance", "code", "errors", "request_id"}
    assert (document["status"], document["code"], document["instance"]) == (404, "not_found", "/api/v1/metrics/jobs/nothing")
    assert document["request_id"] == answer.headers["x-request-id"] != ""


async def test_field_errors_point_into_the_body(client: httpx.AsyncClient) -> None:
    answer = await client.post("/api/v1/users", json={"name": "!", "role": "king", "extra": 1})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    assert {error["pointer"]: error["code"] for error in answer.json()["errors"]} == {
        "/name": "string_pattern_mismatch",
        "/role": "literal_error",
        "/extra": "extra_forbidden",
    }


async def test_a_bad_name_is_refused_in_words_not_by_a_regular_expression(client: httpx.AsyncClient) -> None:
    answer = (await client.post("/api/v1/training/plan", json={"name": "Bad Name!", "labels": {"A b": "x"}})).json()
    name, label = answer["errors"]
    assert (
        name["message"]
        == "Invalid value 'Bad Name!': use 1 to 63 lower-case letters, digits, '.', '_' and '-'; first and last a letter or digit"
    )
    assert name["hint"] == "for example gpt-small"
    assert label["message"].startswith("Invalid value 'A b': use 1 to 63 lower-case letters")
    assert "^" not in str(answer)


@pytest.mark.parametrize(
    ("location", "missing", "expected"),
    [
        (("model", "gpt", "dim"), False, "/model/dim"),
        (("model", "gpt"), False, "/model"),
        (("model", "gpt", "layers"), True, "/model/layers"),
        (("labels", "a/b"), False, "/labels/a~1b"),
        (("items", 1, "x"), False, "/items/1/x"),
    ],
)
def test_pointers_name_places_in_the_document(location: tuple[int | str, ...], missing: bool, expected: str) -> None:
    body = {"model": {"kind": "gpt", "dim": 1}, "labels": {"a/b": 1}, "items": [{}, {"x": 1}]}
    assert pointer(location, body, missing=missing) == expected


@pytest.mark.parametrize("body", [b"{", b"nonsense", b"\xff\xfe"])
async def test_a_body_that_is_no_json_is_malformed(client: httpx.AsyncClient, body: bytes) -> None:
    answer = await client.post("/api/v1/users", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed_body")


async def test_the_limit_of_a_body_holds_whatever_its_length_claims(client: httpx.AsyncClient) -> None:
    async def endless() -> Any:
        for _ in range(40):
            yield b" " * (1 << 15)

    for body in (b" " * ((1 << 20) + 1), endless()):
        answer = await client.post("/api/v1/users", content=body, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


async def test_unknown_parameters_are_named_with_a_guess(client: httpx.AsyncClient) -> None:
    answer = await client.get("/api/v1/users?limt=5")
    assert (answer.status_code, answer.json()["code"]) == (400, "unknown_parameter")
    assert answer.json()["errors"][0]["hint"] == "did you mean limit?"


async def test_methods_and_paths_that_do_not_exist(client: httpx.AsyncClient) -> None:
    wrong = await client.put("/api/v1/users")
    assert (wrong.status_code, wrong.json()["code"]) == (405, "method_not_allowed")
    missing = await client.get("/api/v1/nothing")
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")


async def test_a_bug_answers_without_its_stack(app: FastAPI, connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    @app.get("/healthz/broken")
    async def broken() -> None:
        raise ValueError("secret detail")

    app.router.routes.insert(0, app.router.routes.pop())
    async with connect() as client:
        with caplog.at_level(logging.ERROR, logger="paceline.api.problems"):
            answer = await client.get("/healthz/broken")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "secret detail" not in answer.text
    assert "secret detail" in caplog.text


def test_every_code_has_a_status_and_a_title() -> None:
    for code, kind in CATALOGUE.items():
        assert 400 <= kind.status < 600
        assert ProblemError(code, "x").document(instance="/", request_id="r").title == kind.title


def literals() -> set[str]:
    """All texts in the sources of the coordinator, but for those of the catalogue."""
    files = [path for path in (*(ROOT / "api").rglob("*.py"), *(ROOT / "cluster/policy").rglob("*.py")) if path != ROOT / "api/errors.py"]
    trees = [ast.parse(path.read_text()) for path in files]
    return {node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_every_code_that_is_explained_is_one_that_can_come() -> None:
    assert sorted(CATALOGUE.keys() - literals()) == []


async def test_a_replayed_create_answers_the_same_once(client: httpx.AsyncClient) -> None:
    sent = {"json": {"name": "eve"}, "headers": {"Idempotency-Key": "k1"}}
    answers = await asyncio.gather(*(client.post("/api/v1/users", **sent) for _ in range(4)))  # type: ignore[arg-type]
    made = [answer.json() for answer in answers if answer.status_code == 201]
    assert made
    assert all(answer == made[0] for answer in made)
    assert {answer.json().get("code") for answer in answers if answer.status_code != 201} <= {"idempotency_conflict"}
    names = [user["name"] for user in (await client.get("/api/v1/users")).json()["items"]]
    assert names.count("eve") == 1


async def test_a_key_belongs_to_one_body(client: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "k1"}
    assert (await client.post("/api/v1/users", json={"name": "eve"}, headers=headers)).status_code == 201
    other = await client.post("/api/v1/users", json={"name": "mallory"}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")


async def test_a_failed_create_leaves_the_key_free(client: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "k1"}
    assert (await client.post("/api/v1/users", json={"name": "admin"}, headers=headers)).status_code == 409
    assert (await client.post("/api/v1/users", json={"name": "eve"}, headers=headers)).status_code == 201


async def test_a_secret_is_not_kept_for_replay(client: httpx.AsyncClient) -> None:
    sent: Any = {"json": {"name": "laptop"}, "headers": {"Idempotency-Key": "k1"}}
    assert (await client.post("/api/v1/keys", **sent)).status_code == 201
    again = await client.post("/api/v1/keys", **sent)
    assert (again.status_code, again.json()["code"]) == (409, "already_created")
