"""How long a committed step takes to a browser's screen: measured and printed."""

from __future__ import annotations

import statistics

import pytest
from playwright.sync_api import Page

from scripts.bench import live
from tests.e2e.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

STEPS = 150


def test_every_step_reaches_the_screen_and_how_soon(stack: Stack, page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    page.goto(stack.login_link())
    page.wait_for_url("**/jobs*")
    with stack.cordoned():  # it begins once its page is open, however long a browser takes for that
        job_id = stack.submit(live.spec(STEPS))
        live.open_page(page, job_id, stack.server)
    drawings = live.watch(page, STEPS, lambda: stack.job(job_id)["state"] in ("completed", "failed"))

    (curve,) = stack.get(f"/metrics/jobs/{job_id}", names="loss")["curves"]
    assert curve["steps"] == list(range(1, STEPS + 1))
    assert drawings[-1][0] == STEPS, "the last step was never drawn"
    seconds = live.delays(drawings, curve["steps"], curve["times"])
    assert len(seconds) >= STEPS // 2, "the page was opened too late to measure"
    p95 = statistics.quantiles(seconds, n=20)[-1]
    with capsys.disabled():
        print(f"\nstep to browser: median {statistics.median(seconds):.3f} s, p95 {p95:.3f} s over {len(seconds)} steps (goal: p95 < 1 s)")
