"""The whole story, as a new user lives it: up, sign in, submit, watch, pause, resume, cancel, lose the coordinator, see no hole."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.specs import tiny_gpt
from tests.e2e.stack import Stack, wait_until
from tests.ports import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

STEPS = 700


def test_the_whole_story(empty_stack: Stack, page: Page) -> None:
    stack = empty_stack
    sign_in(page, stack.up(free_port()))
    expect(page.get_by_text("No jobs yet")).to_be_visible()

    job_id = submit_from_the_form(page, stack)
    stack.wait_for_step(job_id, 5)
    first = newest_step_drawn(page)
    wait_until("the curve to grow", lambda: newest_step_drawn(page) >= first + 5, 30)

    page.get_by_role("button", name="Pause", exact=True).click()
    paused = stack.wait_for_state(job_id, "paused")
    expect(page.get_by_role("button", name="Resume", exact=True)).to_be_visible()
    assert all(slot["job_id"] is None for node in stack.get("/cluster/nodes")["items"] for slot in node["slots"]), "slots are still held"

    page.get_by_role("button", name="Resume", exact=True).click()
    stack.wait_for_state(job_id, "running")
    stack.wait_for_step(job_id, paused["progress"]["step"] + 5)

    cancel_another(page, stack)
    page.goto(f"{stack.server}/jobs/{job_id}")
    lose_the_coordinator(page, stack, job_id)

    done = stack.wait_for_state(job_id, "completed", "failed", timeout=180)
    assert done["state"] == "completed", done
    steps = [step for step, _ in stack.raw_curve(job_id)]
    assert steps == list(range(1, STEPS + 1)), "a step is missing or doubled"
    wait_until("the last step on the screen", lambda: newest_step_drawn(page) == STEPS, 20)
    expect(page.get_by_text("completed", exact=True).first).to_be_visible()


def sign_in(page: Page, link: str) -> None:
    page.goto(link)
    page.wait_for_url("**/jobs*")
    assert "token" not in page.url
    page.goto(link)
    expect(page.get_by_role("alert")).to_contain_text("This link has expired or was already used")
    page.goto(link.partition("/login")[0])
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()


def submit_from_the_form(page: Page, stack: Stack) -> str:
    page.get_by_role("link", name="New job").first.click()
    for field, value in {"/name": "story", "/model/layers": "2", "/model/heads": "2", "/model/dim": "64", "/model/context": "64"}.items():
        page.locator(f'[name="{field}"]').fill(value)
    page.locator('[name="/training/steps"]').fill("-1")
    expect(page.get_by_role("list", name="Problems")).to_contain_text("/training/steps")
    expect(page.get_by_role("button", name="Submit job")).to_be_disabled()
    for field, value in {"steps": str(STEPS), "global_batch_size": "8", "eval_every_steps": "200", "generate_tokens": "0"}.items():
        page.locator(f'[name="/training/{field}"]').fill(value)
    expect(page.get_by_text("starts now")).to_be_visible()
    expect(page.get_by_role("table", name="Placement")).to_contain_text("local-2")
    page.get_by_role("button", name="Submit job").click()
    page.wait_for_url(re.compile(r"/jobs/01[0-9A-Z]{24}"))
    return page.url.rpartition("/")[2].partition("?")[0]


def newest_step_drawn(page: Page) -> int:
    chart = page.get_by_role("region", name="Loss chart").locator("[data-last-step]")
    return int(chart.get_attribute("data-last-step") or 0)


def cancel_another(page: Page, stack: Stack) -> None:
    other = stack.submit(tiny_gpt("unwanted", steps=100_000))
    page.goto(f"{stack.server}/jobs/{other}")
    waits = wait_until("why it waits", lambda: (stack.job(other)["pending"] or {}).get("text"), 10)
    assert "needs 2 free slots" in waits
    expect(page.get_by_text("needs 2 free slots", exact=False).first).to_be_visible()
    page.get_by_role("button", name="Cancel job").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel job").click()
    assert stack.wait_for_state(other, "cancelled", timeout=10)["end_reason"] == "cancelled"
    expect(page.get_by_text("cancelled", exact=True).first).to_be_visible()


def lose_the_coordinator(page: Page, stack: Stack, job_id: str) -> None:
    """kill -9 it in the middle of the run; the ranks go on, and the page catches up by itself."""
    expect(page.get_by_role("region", name="Loss chart")).to_be_visible()
    before = stack.job(job_id)
    stack.kill_coordinator()
    drawn = newest_step_drawn(page)  # by the end of `up` it may have caught up, and the job be done
    stack.up(free_port())
    after = stack.job(job_id)
    assert pids(after) == pids(before), "the ranks were restarted"
    assert after["generation"] == before["generation"]
    reached = stack.wait_for_step(job_id, min(STEPS, max(before["progress"]["step"], drawn) + 20))
    wait_until("the page to catch up by itself", lambda: newest_step_drawn(page) >= reached, 30)


def pids(job: dict[str, object]) -> list[object]:
    ranks = job["ranks"]
    assert isinstance(ranks, list)
    return [rank["pid"] for rank in ranks]
