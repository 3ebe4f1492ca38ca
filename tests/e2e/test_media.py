"""Images, histograms and tables of two ranks in a real browser, after one of the ranks was killed and all were started again."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.axe import findings
from tests.e2e.signed_in import signed_in
from tests.e2e.stack import Stack, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
expect.set_options(timeout=30_000)

STEPS = 120
KEYS = ["preds", "samples", "weights"]


@pytest.fixture(scope="module")
def job_id(stack: Stack) -> str:
    spec = {
        "name": "with-media",
        "resources": {"nodes": 2},
        "script": {"path": "logs_media.py", "args": [str(STEPS)]},
        "fault_tolerance": {"max_restarts": 2},
        "environment": {"working_directory": str(Path(__file__).parent / "user_code")},
    }
    job_id = stack.submit(spec)
    wait_until("media of step 30", lambda: last_step(stack, job_id) >= 30, 120)
    (rank,) = [each for each in stack.get(f"/training/jobs/{job_id}")["ranks"] if each["rank"] == 1]
    os.kill(rank["pid"], signal.SIGKILL)
    stack.wait_for_state(job_id, "completed", timeout=120)
    wait_until("the last object", lambda: all(each["steps"][-1:] == [STEPS] for each in keys(stack, job_id)), 60)
    return job_id


def keys(stack: Stack, job_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = stack.get(f"/training/jobs/{job_id}/media")["keys"]
    return found


def last_step(stack: Stack, job_id: str) -> int:
    return max((each["steps"][-1] for each in keys(stack, job_id)), default=0)


@pytest.fixture
def page(stack: Stack, browser: Browser) -> Iterator[Page]:
    with signed_in(stack, browser, height=900) as page:
        yield page


def test_every_step_is_there_once_after_the_kill(stack: Stack, job_id: str) -> None:
    for each in keys(stack, job_id):
        assert (each["steps"], each["ranks"]) == (list(range(10, STEPS + 1, 10)), [0, 1]), each
    assert [each["key"] for each in keys(stack, job_id)] == KEYS
    first = stack.get(f"/training/jobs/{job_id}/media/object", key="samples", step=10)
    assert (first["generation"], first["ranks"]) == (2, [0, 1]), "the script began anew, and so did what it logged"


def test_the_page_shows_them_and_moves_by_keyboard(stack: Stack, job_id: str, page: Page) -> None:
    page.goto(f"{stack.server}/jobs/{job_id}?tab=media")
    images = page.get_by_role("region", name="samples images")
    newest = images.get_by_role("img", name=f"rank 1 at {STEPS}")
    newest.scroll_into_view_if_needed()
    expect(newest).to_be_visible()
    page.wait_for_function("(image) => image.complete && image.naturalWidth === 8", arg=newest.element_handle())
    slider = page.get_by_role("slider", name="Step")
    slider.focus()
    page.keyboard.press("Home")
    expect(images.get_by_role("img", name="rank 0 at 10", exact=True)).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(images.get_by_role("img", name="rank 0 at 20", exact=True)).to_be_visible()
    expect(page).to_have_url(f"{stack.server}/jobs/{job_id}?tab=media&mediaStep=20")
    histogram = page.get_by_role("region", name="weights histogram")
    expect(histogram.get_by_role("img", name="Histograms of weights, rank 1 over steps")).to_be_visible()
    expect(histogram).to_contain_text("20 values from 1 to 20")
    table = page.get_by_role("table", name="preds, rank 0, step 20")
    table.get_by_role("button", name="square").click()
    expect(table.get_by_role("row").nth(1)).to_contain_text("841")
    with page.expect_download() as download:
        page.get_by_role("region", name="preds table").get_by_role("button", name="Download CSV").first.click()
    assert Path(download.value.path()).read_text().splitlines()[:2] == ["n,square", "0,0"]
    assert findings(page) == []
