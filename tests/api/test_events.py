"""The history over REST: in order, by cursor, of everything or of one job."""

from __future__ import annotations

import httpx

from paceline.api.core.context import Services
from paceline.api.core.identity import SYSTEM
from paceline.api.services.lifecycle import events
from tests import factories


async def test_reading_on_by_cursor_sees_every_event_once(client: httpx.AsyncClient, services: Services) -> None:
    async with services.write() as session:
        job = await factories.create_job(session)
        for n in range(7):
            await events.record(
                session, type="test", actor=SYSTEM, cause="c", message=f"m{n}", job_id=job.id if n % 2 else None, data={"n": n}
            )
    seen, after = [], 0
    while page := (await client.get("/api/v1/events", params={"after": after, "limit": 3})).json():
        if not page["items"]:
            break
        seen += [item["message"] for item in page["items"]]
        after = page["next_after"]
    assert seen == [f"m{n}" for n in range(7)]
    mine = (await client.get(f"/api/v1/training/jobs/{job.id}/events")).json()["items"]
    assert [item["data"]["n"] for item in mine] == [1, 3, 5]
    assert mine[0]["actor"] == {"kind": "system", "id": "coordinator", "name": "coordinator"}


async def test_creating_a_user_is_in_the_history(client: httpx.AsyncClient) -> None:
    await client.post("/api/v1/users", json={"name": "eve"})
    (event,) = (await client.get("/api/v1/events")).json()["items"]
    assert (event["type"], event["actor"]["name"], event["cause"]) == ("user.created", "admin", "request")


async def test_bad_parameters_are_problems(client: httpx.AsyncClient) -> None:
    told = (await client.get("/api/v1/events?limit=900")).json()["detail"]
    assert told == "limit: must be 200 or less; got 900"
    assert (await client.get("/api/v1/events?limit=many")).json()["detail"] == "limit: takes a whole number; got 'many'"
    for query, code in (("after=-1", "invalid_parameter"), ("limit=201", "invalid_parameter"), ("since=1", "unknown_parameter")):
        answer = await client.get(f"/api/v1/events?{query}")
        assert (answer.status_code, answer.json()["code"]) == (400, code)


async def test_the_newest_can_be_read_first_the_oldest_of_them_in_front(client: httpx.AsyncClient, services: Services) -> None:
    await client.post("/api/v1/users", json={"name": "ada", "role": "viewer"})
    await client.post("/api/v1/users", json={"name": "eve", "role": "viewer"})
    every = (await client.get("/api/v1/events")).json()["items"]
    newest = (await client.get("/api/v1/events", params={"tail": "true", "limit": 2})).json()
    assert newest == {"items": every[-2:], "next_after": every[-1]["seq"]}


async def test_events_have_the_asked_fields_alone(client: httpx.AsyncClient) -> None:
    await client.post("/api/v1/users", json={"name": "eve"})
    page = (await client.get("/api/v1/events", params={"fields": "type,seq"})).json()
    assert page == {"items": [{"type": "user.created", "seq": page["next_after"]}], "next_after": page["next_after"]}
    assert "'kind' is not one of actor, cause" in (await client.get("/api/v1/events", params={"fields": "kind"})).json()["detail"]


#: Their items are made for one reader each, and small.
WITHOUT_FIELDS = {"logs", "files", "samples"}


async def test_every_list_in_pages_may_be_asked_for_fields_alone(client: httpx.AsyncClient) -> None:
    paths = (await client.get("/api/v1/openapi.json")).json()["paths"]
    queries = {path: {each["name"] for each in methods["get"].get("parameters", [])} for path, methods in paths.items() if "get" in methods}
    lists = {path: names for path, names in queries.items() if "limit" in names and path.rpartition("/")[2] not in WITHOUT_FIELDS}
    assert len(lists) > 15
    assert [path for path, names in lists.items() if "fields" not in names] == []
