"""Packages at submit: requirements files are read from the job's code; an image needs a node that can run it, requirements one with uv."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import httpx
import pytest

from paceline.api.core.context import Services
from paceline.bundles.archive import pack
from paceline.bundles.listing import list_files
from paceline.cluster.states import NodeState
from tests import factories
from tests.api import test_experiments as experiments
from tests.api.services.bundles.test_bundles import Sent
from tests.api.test_jobs import JOBS

PLAN = "/api/v1/training/plan"


async def code(client: httpx.AsyncClient, folder: Path, **files: str) -> str:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    into = io.BytesIO()
    packed = pack(list_files(folder), into)
    await Sent(client, packed, into.getvalue()).send_all()
    return packed.digest


def job(**environment: Any) -> dict[str, Any]:
    return {"name": "job", "script": {"path": "train.py"}, "environment": environment}


async def test_a_file_of_the_code_is_read_and_the_job_keeps_its_lines(client: httpx.AsyncClient, tmp_path: Path) -> None:
    digest = await code(client, tmp_path / "code", **{"requirements.txt": "Tiktoken >= 0.9\n-r more.txt\n", "more.txt": "numpy\n"})
    answer = await client.post(JOBS, json=job(requirements="requirements.txt", code={"bundle": digest}))
    assert answer.status_code == 201, answer.text
    assert answer.json()["spec"]["environment"]["requirements"] == ["tiktoken>=0.9", "numpy"]


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("none.txt", "there is no none.txt in the job's code"),
        ("bad.txt", "bad.txt line 1: -e . is a folder"),
        ("bytes.txt", "as UTF-8 text"),
    ],
)
async def test_a_file_that_cannot_be_used_is_refused(client: httpx.AsyncClient, tmp_path: Path, named: str, says: str) -> None:
    digest = await code(client, tmp_path / "code", **{"bad.txt": "-e .\n"})
    if named == "bytes.txt":
        (tmp_path / "code" / named).write_bytes(b"\xff\xfe")
        digest = await code_again(client, tmp_path / "code")
    answer = await client.post(JOBS, json=job(requirements=named, code={"bundle": digest}))
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_spec"), answer.text
    assert says in answer.json()["detail"]
    assert answer.json()["errors"][0]["pointer"] == "/environment/requirements"


async def code_again(client: httpx.AsyncClient, folder: Path) -> str:
    into = io.BytesIO()
    packed = pack(list_files(folder), into)
    await Sent(client, packed, into.getvalue()).send_all()
    return packed.digest


async def test_a_file_without_code_has_not_come_along(client: httpx.AsyncClient) -> None:
    answer = await client.post(JOBS, json=job(requirements="requirements.txt"))
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_spec")
    assert "--workdir" in answer.json()["detail"]


async def test_a_plan_is_that_of_the_job_with_its_file(client: httpx.AsyncClient, tmp_path: Path) -> None:
    """The plan was of the file's name, and the job of its lines: a submission with the plan's hash was always refused."""
    digest = await code(client, tmp_path / "code", **{"requirements.txt": "numpy\n"})
    wanted = job(requirements="requirements.txt", code={"bundle": digest})
    plan = (await client.post(PLAN, json=wanted)).json()
    answer = await client.post(JOBS, json=wanted, params={"plan_hash": plan["plan_hash"]})
    assert answer.status_code == 201, answer.text


async def test_trials_of_an_experiment_have_the_lines_of_their_codes_file(
    client: httpx.AsyncClient, services: Services, tmp_path: Path
) -> None:
    """Each was refused: the coordinator did not have the file that was sent along."""
    async with services.write() as session:
        await factories.create_node(session, inventory={"uv": "0.9"})
    digest = await code(client, tmp_path / "code", **{"requirements.txt": "numpy\n"})
    wanted = {key: value for key, value in job(requirements="requirements.txt", code={"bundle": digest}).items() if key != "name"}
    made = await experiments.post(client, job=wanted, grid={"script.args": [["a"], ["b"]]})
    await experiments.step(services)
    assert [trial["refusal"] for trial in await experiments.trials(client, made)] == [None, None]
    (first, *_) = await experiments.jobs(client)
    assert (await client.get(f"{JOBS}/{first['id']}")).json()["spec"]["environment"]["requirements"] == ["numpy"]


IMAGE = "docker.io/library/python:3.11"


@pytest.mark.parametrize(
    ("wanted", "inventory", "code", "way_out"),
    [
        ({"image": IMAGE}, {}, "no_container_engine", "use environment.requirements"),
        ({"image": IMAGE}, {"container_engines": []}, "no_container_engine", "use environment.requirements"),
        ({"requirements": ["six"]}, {"has_uv": False}, "no_uv", "pip install 'paceline[worker]'"),
    ],
    ids=["an agent that says nothing of engines", "an agent without an engine", "an agent without uv"],
)
async def test_what_no_node_can_run_is_told_by_plan_and_submit(
    client: httpx.AsyncClient, services: Services, wanted: dict[str, Any], inventory: dict[str, Any], code: str, way_out: str
) -> None:
    body = job(**wanted)
    assert (await client.post(JOBS, json=body)).status_code == 201, "nodes may join that can"
    assert (await client.post(PLAN, json=body)).json()["pending"]["code"] == "no_nodes"
    async with services.write() as session:
        await factories.create_node(session, name="plain", slots=1, inventory=inventory)
    for path in (JOBS, PLAN):
        answer = await client.post(path, json={**body, "name": "second"})
        assert (answer.status_code, answer.json()["code"]) == (422, code), answer.text
        assert "no node has" in answer.json()["detail"]
        assert "here: plain" in answer.json()["detail"]
        assert way_out in answer.json()["errors"][0]["hint"]
    async with services.write() as session:
        await factories.create_node(session, name="able", slots=1, inventory={"container_engines": ["podman"], "has_uv": True})
    assert (await client.post(JOBS, json={**body, "name": "third"})).status_code == 201
    placed = (await client.post(PLAN, json=body)).json()["placement"]
    assert [each["node_name"] for each in placed or ()] in ([], ["able"])


async def test_a_job_with_an_image_is_taken_while_a_node_joins_that_has_not_told_its_engines(
    client: httpx.AsyncClient, services: Services
) -> None:
    """It was refused for a node that has one, and a trial for good."""
    async with services.write() as session:
        await factories.create_node(session, name="plain", slots=1, inventory={})
        await factories.create_node(session, name="able", state=NodeState.JOINING, slots=0)
    assert (await client.post(JOBS, json=job(image=IMAGE))).status_code == 201


async def test_a_job_may_wait_for_a_pool_whose_nodes_can_run_it(client: httpx.AsyncClient, services: Services) -> None:
    """It was refused as long as another node was there, although a pool would have launched one for it."""
    body = job(image=IMAGE)
    pool = {
        "name": "lab",
        "provider": {"type": "ssh", "hosts": ["ada@gpu1"], "checkpoints": "/shared"},
        "slots": 1,
        "autoscale": {"device": "cpu"},
    }
    async with services.write() as session:
        await factories.create_node(session, name="plain", slots=1, inventory={})
    assert (await client.put("/api/v1/cluster/pools/lab", json=pool)).status_code == 200
    refused = await client.post(JOBS, json=body)
    assert (refused.status_code, refused.json()["code"]) == (422, "no_container_engine")
    assert "set autoscale.containers of the pool to true" in refused.json()["errors"][0]["hint"]
    pool["autoscale"] = {"device": "cpu", "containers": True}
    assert (await client.put("/api/v1/cluster/pools/lab", json=pool)).status_code == 200
    assert (await client.post(PLAN, json=body)).json()["pending"]["code"] == "no_container_engine"
    assert (await client.post(JOBS, json=body)).status_code == 201


async def test_an_agent_that_does_not_speak_of_uv_gets_jobs_with_packages(client: httpx.AsyncClient, services: Services) -> None:
    async with services.write() as session:
        await factories.create_node(session, name="earlier", slots=1, inventory={})
    plan = (await client.post(PLAN, json=job(requirements=["six"]))).json()
    assert [each["node_name"] for each in plan["placement"]] == ["earlier"]
