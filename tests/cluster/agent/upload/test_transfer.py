"""One request about a file: what the coordinator refuses is given up, and what a proxy says of a coordinator that is away is not."""

from __future__ import annotations

import httpx
import pytest

from paceline.cluster.agent.upload.transfer import PROBLEM_TYPE, CoordinatorAwayError, send
from paceline.monitoring.artifacts import Received

PROBLEM = {"content-type": PROBLEM_TYPE}
HTML = {"content-type": "text/html"}


async def answered(response: httpx.Response) -> Received | None:
    http = httpx.AsyncClient(base_url="http://c", transport=httpx.MockTransport(lambda _: response))
    return await send(http, "POST", "/files", b"", Received)


@pytest.mark.parametrize("status", [404, 422])
async def test_what_the_coordinator_refuses_is_given_up(status: int) -> None:
    assert await answered(httpx.Response(status, headers=PROBLEM, text="{}")) is None


@pytest.mark.parametrize(
    "response",
    [
        httpx.Response(404, headers=HTML, text="<h1>404 page not found</h1>"),
        httpx.Response(404),
        httpx.Response(422, headers=HTML),
        httpx.Response(200, headers=HTML, text="<h1>Back soon</h1>"),
        httpx.Response(507, headers=PROBLEM),
    ],
)
async def test_a_proxy_that_answers_for_a_coordinator_that_is_away_costs_no_file(response: httpx.Response) -> None:
    with pytest.raises(CoordinatorAwayError):
        await answered(response)
