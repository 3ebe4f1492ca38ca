"""kill -9 of a rank that holds a part of every matrix, or of every sequence, on a whole stack: what its owner sees of it."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.specs import tiny_gpt
from tests.e2e.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

#: Enough for a kill to strike in the middle.
STEPS = 120
SAVED_EVERY = 10
KILLED_AFTER = 25
#: What a loaded machine may take to draw a page.
expect.set_options(timeout=30_000)


@pytest.fixture
def owner(page: Page, stack: Stack) -> Page:
    page.goto(stack.login_link())
    page.wait_for_url("**/jobs*")
    return page


def lose_rank_one(stack: Stack, axis: str) -> tuple[str, dict[str, Any]]:
    """(the job, its one incident), once every step is done, rank 0 still in the process in which it began."""
    job_id = stack.submit(tiny_gpt(axis, STEPS, checkpoint_every=SAVED_EVERY, parallelism={axis: 2}))
    stack.wait_for_step(job_id, KILLED_AFTER)
    before = stack.job(job_id)
    os.kill(before["ranks"][1]["pid"], signal.SIGKILL)
    done = stack.wait_for_state(job_id, "completed", "failed", timeout=120)
    assert (done["state"], done["strategy"], done["generation"]) == ("completed", f"ddp, {axis} 2", 2), done
    assert done["ranks"][0]["pid"] == before["ranks"][0]["pid"]
    assert done["ranks"][1]["pid"] != before["ranks"][1]["pid"]
    assert {step for step, _ in stack.raw_curve(job_id)} == set(range(1, STEPS + 1))
    (incident,) = stack.get(f"/training/jobs/{job_id}/incidents")
    assert (incident["outcome"], incident["survivors"], incident["new_size"]) == ("recovered", [0], 2), incident
    return job_id, incident


def assert_shown(owner: Page, stack: Stack, job_id: str, axis: str, *words: str) -> None:
    """`words`: in the incident log's row. The ranks' table has a column for the axis, and each rank's place along it."""
    owner.goto(f"{stack.server}/jobs/{job_id}?tab=incidents")
    row = owner.get_by_role("table", name="Incidents").get_by_role("row", name="killed by SIGKILL")
    for text in words:
        expect(row).to_contain_text(text)
    owner.goto(f"{stack.server}/jobs/{job_id}?tab=ranks")
    ranks = owner.get_by_role("table", name="Ranks")
    expect(ranks.get_by_role("columnheader").nth(1)).to_have_text(axis.capitalize())
    expect(ranks.get_by_role("row").nth(2).get_by_role("cell").nth(1)).to_have_text("1")


def test_a_lost_part_of_the_matrices_takes_all_back_to_the_checkpoint_in_place(stack: Stack, owner: Page) -> None:
    job_id, incident = lose_rank_one(stack, "tensor")
    saved, lost = incident["resumed_step"], incident["steps_lost"]
    assert (incident["action"], saved % SAVED_EVERY, lost) == ("fell_back", 0, incident["step"] - saved), incident
    assert saved >= SAVED_EVERY
    assert stack.job(job_id)["restarts"] == 1
    goodput = stack.get(f"/training/jobs/{job_id}/goodput")
    assert (goodput["useful_steps"], goodput["redone_steps"]) == (STEPS, lost)
    assert_shown(owner, stack, job_id, "tensor", "fell back", f"to step {saved}, in place", "2 of 2")


def test_a_lost_part_of_the_sequences_costs_no_step(stack: Stack, owner: Page) -> None:
    """Every rank of a context axis has all parameters: the survivor's state is the truth."""
    job_id, incident = lose_rank_one(stack, "context")
    assert (incident["action"], incident["steps_lost"]) == ("closed_up", 0), incident
    assert stack.job(job_id)["restarts"] == 0
    assert_shown(owner, stack, job_id, "context", "recovered", "2 of 2")
