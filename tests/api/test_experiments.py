"""The contract of the experiment endpoints, on both databases."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from paceline.api.core.context import Services
from paceline.api.loops import experiments as loop
from paceline.cluster.states import EndReason, Intent, JobState
from paceline.db.models.jobs import JobRow
from paceline.training.spec.job import JobSpec
from tests import factories
from tests.conftest import Connect

EXPERIMENTS, JOBS = "/api/v1/experiments", "/api/v1/training/jobs"
JOB: dict[str, Any] = {
    "model": {"kind": "mlp", "hidden": [16]},
    "data": {"kind": "digits"},
    "optimizer": {"kind": "adamw"},
    "training": {"steps": 10, "global_batch_size": 8},
}
Found = dict[str, Any]


def document(**changes: Any) -> Found:
    return {"name": "lr", "job": JOB, "grid": {"optimizer.lr": [0.1, 0.01]}} | changes


async def post(client: httpx.AsyncClient, **changes: Any) -> Found:
    answer = await client.post(EXPERIMENTS, json=document(**changes))
    assert answer.status_code in (200, 201), answer.text
    found: Found = answer.json()
    return found


async def read(client: httpx.AsyncClient, experiment: Found) -> Found:
    found: Found = (await client.get(f"{EXPERIMENTS}/{experiment['id']}")).json()
    return found


async def trials(client: httpx.AsyncClient, experiment: Found) -> list[Found]:
    found: list[Found] = (await client.get(f"{EXPERIMENTS}/{experiment['id']}/trials", params={"limit": 200})).json()["items"]
    return found


async def states(client: httpx.AsyncClient, experiment: Found) -> list[str]:
    return [trial["state"] for trial in await trials(client, experiment)]


async def jobs(client: httpx.AsyncClient) -> list[Found]:
    found: list[Found] = (await client.get(JOBS, params={"sort": "created_at"})).json()["items"]
    return found


async def step(services: Services) -> None:
    await loop.step_once(services, services.now())


async def set_jobs(services: Services, *names: str, state: JobState, **columns: Any) -> None:
    """Have the scheduler's part done to these jobs."""
    async with services.write() as session:
        await session.execute(update(JobRow).where(JobRow.name.in_(names)).values(state=state, **columns))


async def end(services: Services, *names: str, state: JobState = JobState.COMPLETED) -> None:
    await set_jobs(services, *names, state=state, ended_at=services.now(), ran_seconds=60.0, end_reason=EndReason.COMPLETED)


def code(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json()["code"]


# --- post


async def test_post_answers_with_the_experiment_and_where_it_is(client: httpx.AsyncClient) -> None:
    answer = await client.post(EXPERIMENTS, json=document(repeats=2, labels={"team": "a"}))
    experiment = answer.json()
    assert (answer.status_code, experiment["state"], experiment["axes"]) == (201, "running", ["optimizer.lr"])
    assert (answer.headers["Location"], answer.headers["ETag"]) == (f"{EXPERIMENTS}/{experiment['id']}", '"1"')
    assert experiment["trials"]["total"] == experiment["trials"]["waiting"] == 4
    assert (experiment["created_by"]["name"], experiment["labels"], experiment["seconds_left"]) == ("admin", {"team": "a"}, None)
    assert [(trial["index"], trial["values"], trial["repeat"]) for trial in await trials(client, experiment)] == [
        (0, {"optimizer.lr": 0.1}, 0),
        (1, {"optimizer.lr": 0.1}, 1),
        (2, {"optimizer.lr": 0.01}, 0),
        (3, {"optimizer.lr": 0.01}, 1),
    ]


async def test_post_takes_yaml_and_keeps_the_order_of_the_axes(client: httpx.AsyncClient) -> None:
    text = (
        "name: y\njob: {model: {kind: mlp}, data: {kind: digits}, training: {steps: 5}}\ngrid: {training.seed: [1, 2], compile: [false]}\n"
    )
    answer = await client.post(EXPERIMENTS, content=text, headers={"Content-Type": "application/yaml"})
    assert (answer.status_code, answer.json()["axes"]) == (201, ["training.seed", "compile"])
    stored = await read(client, answer.json())
    assert list(stored["spec"]["grid"]) == ["training.seed", "compile"]
    assert list((await trials(client, stored))[0]["values"]) == ["training.seed", "compile"]


@pytest.mark.parametrize(
    ("changes", "pointer", "message"),
    [
        ({"grid": {"optimizer.lr": []}}, "/grid/optimizer.lr", "grid.optimizer.lr takes at least 1 entry; got 0"),
        ({"grid": {"optimizer.lr": "0.1"}}, "/grid/optimizer.lr", "an axis is a list of values, such as [0.1, 0.01], or a range"),
        ({"grid": {"optimizer.lr": ["0,1"]}}, "/grid/optimizer.lr", "optimizer.lr takes a number; got '0,1'; write 0.1"),
        ({"grid": {"optimizer.lrr": [1]}}, "/grid/optimizer.lrr", "`lrr` is not a field of optimizer"),
        ({"job": {"optimizer": {"kind": "adamw"}}}, "/job", "model"),
        ({"repeats": 0}, "/repeats", "repeats must be 1 or more; got 0"),
        ({"gird": {}}, "/gird", "`gird` is not a field of"),
    ],
)
async def test_a_spec_of_which_nothing_can_run_is_refused_with_its_field(
    client: httpx.AsyncClient, changes: Found, pointer: str, message: str
) -> None:
    answer = await client.post(EXPERIMENTS, json=document(**changes))
    assert code(answer) == (422, "invalid_experiment")
    first = answer.json()["errors"][0]
    assert first["pointer"] == pointer
    assert message in first["message"]
    assert (await client.get(EXPERIMENTS)).json()["items"] == []


async def test_the_same_key_gets_the_same_answer_and_makes_one_experiment(client: httpx.AsyncClient) -> None:
    answers = [await client.post(EXPERIMENTS, json=document(), headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json() == answers[1].json()
    other = await client.post(EXPERIMENTS, json=document(repeats=2), headers={"Idempotency-Key": "k"})
    assert code(other) == (422, "idempotency_key_reused")


async def test_two_that_post_the_same_name_at_once_make_one_experiment(client: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(*(client.post(EXPERIMENTS, json=document()) for _ in range(3)))
    assert sorted(answer.status_code for answer in answers) == [200, 200, 201]
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert len(await trials(client, answers[0].json())) == 2


# --- plan


async def test_a_plan_tells_what_would_run_and_what_would_be_refused(client: httpx.AsyncClient, services: Services) -> None:
    async with services.write() as session:
        await factories.create_node(session, inventory={"memory_bytes": 1 << 30})
    answer = await client.post(f"{EXPERIMENTS}/plan", json=document(grid={"optimizer.lr": [0.1, -1]}, world_sizes=[1, 2], repeats=3))
    plan = answer.json()
    assert (answer.status_code, plan["trials"], plan["refused"], plan["errors"]) == (200, 12, 6, [])
    assert [(each["world_size"], each["repeats"], each["refusal"]) for each in plan["configurations"][1:3]] == [
        (2, 3, None),
        (1, 3, "optimizer.lr must be more than 0; got -1"),
    ]
    assert plan["configurations"][0]["memory_bytes"] > 10_000
    assert (await client.get(EXPERIMENTS)).json()["items"] == [], "it changes nothing"


async def test_a_plan_tells_the_time_by_earlier_jobs_of_the_same_work(client: httpx.AsyncClient, services: Services) -> None:
    async with services.write() as session:
        await factories.create_node(session, slots=2)
    asked = document(grid={"optimizer.lr": [0.1, 0.01]})
    plan = (await client.post(f"{EXPERIMENTS}/plan", json=asked)).json()
    assert (plan["seconds"], plan["by_earlier_jobs"]) == (None, False)
    spec = JobSpec.model_validate({**JOB, "name": "earlier", "optimizer": {"kind": "sgd", "lr": 0.5}})
    assert spec.training is not None
    twice = spec.model_copy(update={"training": spec.training.model_copy(update={"steps": 2 * (spec.training.steps or 0)})})
    async with services.write() as session:
        await factories.create_job(session, spec=twice, state=JobState.COMPLETED, ran_seconds=60.0, ended_at=services.now())
    plan = (await client.post(f"{EXPERIMENTS}/plan", json=asked)).json()
    assert (plan["seconds"], plan["by_earlier_jobs"]) == (30.0, True), "half of the steps, two trials, two at once"
    assert plan["slot_hours"] == pytest.approx(60 / 3600)
    other = {**asked, "job": {**JOB, "model": {"kind": "mlp", "hidden": [7]}}}
    assert (await client.post(f"{EXPERIMENTS}/plan", json=other)).json()["seconds"] is None


async def test_a_plan_of_a_wrong_job_says_what_is_wrong_with_it(client: httpx.AsyncClient) -> None:
    plan = (await client.post(f"{EXPERIMENTS}/plan", json=document(grid={"optimizer.lrr": [1]}))).json()
    assert ([each["pointer"] for each in plan["errors"]], plan["trials"]) == (["/grid/optimizer.lrr"], 0)


async def test_what_the_planner_refuses_is_refused_in_the_plan_and_in_its_turn(client: httpx.AsyncClient, services: Services) -> None:
    async with services.write() as session:
        await factories.create_node(session, slots=1, taints={"gpu": ""})
    grid = {"parallelism.strategy": ["auto", "ddp"]}
    plan = (await client.post(f"{EXPERIMENTS}/plan", json=document(grid=grid))).json()
    refusals = [each["refusal"] for each in plan["configurations"]]
    assert refusals[1] is None
    assert refusals[0].startswith("strategy auto plans for machines that are here")
    experiment = await post(client, grid=grid)
    await step(services)
    assert [(each["state"], each["refusal"]) for each in await trials(client, experiment)] == [("refused", refusals[0]), ("waiting", None)]


# --- run


async def test_trials_are_jobs_of_the_experiments_owner_with_its_name_and_labels(client: httpx.AsyncClient, services: Services) -> None:
    experiment = await post(client, project="p", labels={"team": "a"})
    await step(services)
    (job,) = await jobs(client)
    assert (job["name"], job["project"], job["created_by"]) == ("lr-0", "p", "admin")
    assert job["labels"] == {"team": "a", "experiment": "lr", "trial": "0"}
    assert job["created_by_id"] == experiment["created_by"]["id"]
    (first, second) = await trials(client, experiment)
    assert (first["state"], first["job"]["id"], first["job"]["state"], second["job"]) == ("waiting", job["id"], "queued", None)


async def test_an_experiment_runs_to_its_end(client: httpx.AsyncClient, services: Services) -> None:
    experiment = await post(client, at_once=1)
    for name in ("lr-0", "lr-1"):
        await step(services)
        await step(services)
        assert [job["name"] for job in await jobs(client) if job["state"] == "queued"] == [name], "one at a time"
        await end(services, name)
    await step(services)
    found = await read(client, experiment)
    assert (found["state"], found["trials"]["completed"], found["ended_at"] is not None) == ("completed", 2, True)
    assert found["slot_hours"] == pytest.approx(120 / 3600)
    before = found["revision"]
    await step(services)
    assert (await read(client, experiment))["revision"] == before, "nothing is left to be done"


async def test_the_time_left_is_told_from_trials_that_have_ended(client: httpx.AsyncClient, services: Services) -> None:
    experiment = await post(client, at_once=1, repeats=2)
    await step(services)
    await end(services, "lr-0")
    await step(services)
    assert (await read(client, experiment))["seconds_left"] == pytest.approx(180)
    plan = (await client.post(f"{EXPERIMENTS}/plan", json=document(at_once=1, repeats=2))).json()
    assert (plan["seconds"], plan["slot_hours"]) == (pytest.approx(180), pytest.approx(180 / 3600)), "of what is missing"


async def test_a_trial_that_is_cancelled_or_fails_is_over_and_the_others_go_on(client: httpx.AsyncClient, services: Services) -> None:
    experiment = await post(client, at_once=1, repeats=2)
    await step(services)
    assert (await client.delete(f"{JOBS}/{(await jobs(client))[0]['id']}")).status_code == 200
    await end(services, "lr-0", state=JobState.CANCELLED)
    await step(services)
    await end(services, "lr-2", state=JobState.FAILED)
    await step(services)
    assert await states(client, experiment) == ["cancelled", "waiting", "failed", "waiting"]


async def test_why_nothing_runs_is_told(client: httpx.AsyncClient, services: Services) -> None:
    experiment = await post(client)
    await step(services)
    await set_jobs(services, "lr-0", state=JobState.QUEUED, pending={"code": "no_nodes", "text": "needs a slot; no node has joined"})
    assert (await read(client, experiment))["waits_for"]["code"] == "no_nodes"
    await set_jobs(services, "lr-0", state=JobState.PAUSED, desired=Intent.PAUSE)
    assert (await read(client, experiment))["waits_for"]["text"] == "trial 0 was paused by hand"


async def test_a_budget_stops_it_and_a_larger_one_lets_it_go_on(client: httpx.AsyncClient, services: Services) -> None:
    experiment = await post(client, at_once=1, budget={"trials": 1})
    await step(services)
    await end(services, "lr-0")
    await step(services)
    found = await read(client, experiment)
    assert (found["state"], found["waits_for"]["code"], found["waits_for"]["text"]) == (
        "stopped",
        "budget",
        "budget.trials=1 trials have run",
    )
    answer = await client.post(EXPERIMENTS, json=document(at_once=1, budget={"trials": 2}))
    assert (answer.status_code, answer.json()["state"]) == (200, "running")
    await step(services)
    assert [(each["state"], each["reused"]) for each in await trials(client, experiment)] == [("completed", True), ("waiting", False)]


# --- again


async def test_the_same_grid_again_runs_only_what_is_missing(client: httpx.AsyncClient, services: Services) -> None:
    experiment = await post(client, at_once=1)
    await step(services)
    await end(services, "lr-0")
    await step(services)
    await end(services, "lr-1", state=JobState.FAILED)
    await step(services)
    assert (await read(client, experiment))["state"] == "completed"
    again = await client.post(EXPERIMENTS, json=document(at_once=1))
    assert (again.status_code, again.json()["id"], again.json()["state"]) == (200, experiment["id"], "running")
    await step(services)
    assert [job["name"] for job in await jobs(client)] == ["lr-0", "lr-1", "lr-1"]
    await end(services, "lr-1")
    await step(services)
    found = await read(client, experiment)
    assert (found["state"], found["slot_hours"]) == ("completed", pytest.approx(180 / 3600)), "the failed try was paid for too"


async def test_a_larger_grid_adds_its_trials_and_a_smaller_one_cancels_what_it_leaves_out(
    client: httpx.AsyncClient, services: Services
) -> None:
    experiment = await post(client)
    await step(services)
    await post(client, grid={"optimizer.lr": [0.01, 0.5]})
    assert [(each["index"], each["values"]["optimizer.lr"]) for each in await trials(client, experiment)] == [(1, 0.01), (2, 0.5)]
    assert [(job["name"], job["desired"]) for job in await jobs(client)] == [("lr-0", "cancel")]


async def test_only_its_owner_and_admins_post_an_experiment_again_or_cancel_it(
    client: httpx.AsyncClient, connect: Connect, services: Services
) -> None:
    experiment = await post(client)
    async with services.write() as session:
        _, member = await factories.create_user(session, name="bob", role="member")
        _, viewer = await factories.create_user(session, name="eve", role="viewer")
    async with connect(member) as bob, connect(viewer) as eve:
        assert code(await bob.post(EXPERIMENTS, json=document())) == (403, "not_the_owner")
        assert code(await bob.delete(f"{EXPERIMENTS}/{experiment['id']}")) == (403, "not_the_owner")
        assert (await bob.put(f"{EXPERIMENTS}/{experiment['id']}/pause")).status_code == 200, "what can be undone is every member's"
        assert code(await eve.post(EXPERIMENTS, json=document(name="x"))) == (403, "forbidden")
        assert (await eve.get(f"{EXPERIMENTS}/{experiment['id']}")).status_code == 200
        assert (await eve.post(f"{EXPERIMENTS}/plan", json=document())).status_code == 200


# --- as one


async def test_pause_and_resume_as_one(client: httpx.AsyncClient, services: Services) -> None:
    experiment = await post(client, at_once=1)
    await step(services)
    paused = await client.put(f"{EXPERIMENTS}/{experiment['id']}/pause", headers={"If-Match": '"1"'})
    assert (paused.status_code, paused.json()["state"], paused.headers["ETag"]) == (200, "paused", '"2"')
    await step(services)
    assert [(job["name"], job["desired"]) for job in await jobs(client)] == [("lr-0", "pause")]
    assert code(await client.put(f"{EXPERIMENTS}/{experiment['id']}/pause")) == (409, "experiment_already_paused")
    assert code(await client.put(f"{EXPERIMENTS}/{experiment['id']}/resume", headers={"If-Match": '"1"'})) == (412, "precondition_failed")
    await set_jobs(services, "lr-0", state=JobState.PAUSED)
    await step(services)
    assert await states(client, experiment) == ["paused", "waiting"]
    assert (await client.put(f"{EXPERIMENTS}/{experiment['id']}/resume")).json()["state"] == "running"
    await step(services)
    assert [(job["name"], job["desired"]) for job in await jobs(client)] == [("lr-0", "run")], "what had begun goes first"
    assert code(await client.put(f"{EXPERIMENTS}/{experiment['id']}/resume")) == (409, "experiment_not_paused")


async def test_cancel_as_one(client: httpx.AsyncClient, services: Services) -> None:
    experiment = await post(client)
    await step(services)
    cancelled = await client.delete(f"{EXPERIMENTS}/{experiment['id']}")
    assert (cancelled.json()["state"], cancelled.json()["ended_at"] is not None) == ("cancelled", True)
    assert (await client.delete(f"{EXPERIMENTS}/{experiment['id']}")).status_code == 200, "again is harmless"
    await step(services)
    assert [(job["name"], job["desired"]) for job in await jobs(client)] == [("lr-0", "cancel")]
    await end(services, "lr-0", state=JobState.CANCELLED)
    assert await states(client, experiment) == ["cancelled", "cancelled"]
    assert code(await client.put(f"{EXPERIMENTS}/{experiment['id']}/pause")) == (409, "experiment_finished")
    again = await post(client)
    assert (again["state"], again["trials"]["waiting"]) == ("running", 2)


# --- read


async def test_lists_are_filtered_sorted_and_paged(client: httpx.AsyncClient) -> None:
    for name in ("b", "a", "c"):
        await post(client, name=name, project="p" if name == "c" else "default")
    await client.put(f"{EXPERIMENTS}/{(await client.get(EXPERIMENTS, params={'q': 'b'})).json()['items'][0]['id']}/pause")

    async def names(**params: Any) -> list[str]:
        return [each["name"] for each in (await client.get(EXPERIMENTS, params=params)).json()["items"]]

    assert await names() == ["c", "a", "b"]
    assert await names(sort="name") == ["a", "b", "c"]
    assert (await names(status="paused"), await names(project="p"), await names(q="C")) == (["b"], ["c"], ["c"])
    first = (await client.get(EXPERIMENTS, params={"limit": 2, "fields": "name"})).json()
    assert first["items"] == [{"name": "c"}, {"name": "a"}]
    assert await names(cursor=first["next_cursor"], limit=2) == ["b"]
    assert code(await client.get(EXPERIMENTS, params={"status": "queued"})) == (400, "invalid_parameter")
    assert code(await client.get(EXPERIMENTS, params={"cursor": "x"})) == (400, "invalid_cursor")


async def test_trials_are_paged(client: httpx.AsyncClient) -> None:
    experiment = await post(client, repeats=2)
    url = f"{EXPERIMENTS}/{experiment['id']}/trials"
    first = (await client.get(url, params={"limit": 3, "fields": "index"})).json()
    assert first["items"] == [{"index": 0}, {"index": 1}, {"index": 2}]
    assert [each["index"] for each in (await client.get(url, params={"cursor": first["next_cursor"]})).json()["items"]] == [3]


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("GET", "/trials"), ("PUT", "/pause"), ("PUT", "/resume"), ("DELETE", "")])
async def test_there_is_no_such_experiment(client: httpx.AsyncClient, method: str, path: str) -> None:
    assert code(await client.request(method, f"{EXPERIMENTS}/nope{path}")) == (404, "not_found")


async def test_the_schema_is_published(client: httpx.AsyncClient) -> None:
    assert (await client.get(f"{EXPERIMENTS}/spec-schema")).json()["title"] == "ExperimentSpec"
