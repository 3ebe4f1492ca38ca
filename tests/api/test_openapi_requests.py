"""Whatever the API's document allows, no request meets an error of ours."""

from __future__ import annotations

import json
from random import Random

import httpx
import pytest
import yaml

from paceline.api.core.context import Services
from paceline.api.errors import CATALOGUE
from paceline.cluster.states import JobState
from paceline.db.models.nodes import NodeRow
from paceline.location import ROOT
from tests import factories
from tests.api.conftest import Agent
from tests.api.drawn_requests import Draw, Operations
from tests.release_only import AT_LENGTH

EACH = 20 if AT_LENGTH else 3


@pytest.fixture
async def operations(services: Services, client: httpx.AsyncClient, agent: Agent, node: tuple[NodeRow, str]) -> Operations:
    """Those of a coordinator that has one of most things: a job that runs, one that has ended, points, lines, a checkpoint, an experiment."""
    await agent.upload(agent.batch(metrics=factories.records(1, 30, eval_loss="NaN"), logs=factories.log_lines(20)))
    async with services.write() as session:
        ended = await factories.create_job(session, state=JobState.COMPLETED, ended_at=factories.START)
        saved = factories.checkpoint(ended, node[0], step=10)
        session.add(saved)
    experiment = yaml.safe_load((ROOT / "examples" / "experiments" / "mnist_twins.yaml").read_text())
    made = await client.post("/api/v1/experiments", json=experiment)
    assert made.status_code == 201, made.text
    known = {
        "job_id": [agent.job_id, ended.id],
        "node_id": [node[0].id, node[0].name],
        "checkpoint_id": [saved.id],
        "experiment_id": [made.json()["id"]],
    }
    document = (await client.get("/api/v1/openapi.json")).json()
    return Operations(document, known)


async def test_no_request_of_the_documents_schema_meets_an_error_of_ours(client: httpx.AsyncClient, operations: Operations) -> None:
    wrong, taken = [], 0
    for request in operations.drawn(EACH):
        answer = await client.request(request.method, request.address, content=request.content, headers=request.headers)
        taken += answer.status_code < 300
        if answer.status_code >= 500 or (answer.status_code >= 400 and answer.json()["code"] not in CATALOGUE):
            wrong.append(f"{answer.status_code} {answer.text[:300]}: {request}")
    assert wrong == []
    assert taken > EACH * 30, "nearly all were refused, so that little was tried"
    assert (await client.get("/api/v1/auth/me")).json()["name"] == "admin"


def test_what_is_drawn_is_within_its_schema_and_the_same_again() -> None:
    document = {"components": {"schemas": {"Part": {"type": "object", "properties": {"a": {"type": "integer", "minimum": 2, "maximum": 3}}, "required": ["a"]}}}}  # fmt: skip
    schema = {
        "type": "array",
        "minItems": 1,
        "items": {"anyOf": [{"$ref": "#/components/schemas/Part"}, {"type": "string", "maxLength": 3}]},
    }
    drawn = [Draw(document, Random(number)).value(schema) for number in range(100)]
    assert drawn == [Draw(document, Random(number)).value(schema) for number in range(100)]
    assert {json.dumps(each) for one in drawn for each in one if isinstance(each, dict)} == {'{"a": 2}', '{"a": 3}'}
    assert all(len(each) <= 3 for one in drawn for each in one if isinstance(each, str))
