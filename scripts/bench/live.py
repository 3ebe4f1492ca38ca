"""From a committed step to the browser's screen: `step_to_browser_s`, on a real job, a real page and a real Chromium.

A step's time is the rank's own record; it is on the screen when the loss chart has been drawn with it or a later one. Rank
and browser share this machine's clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page

from paceline.cli.client import RestClient
from paceline.cli.job_facts import has_ended
from paceline.cli.local.stack import login_link
from scripts.bench.figures import Figure, run, summarize
from scripts.bench.first_step import stack
from scripts.browser import chromium, chromium_executable

STEPS = 400
TIMEOUT_S = 240.0
#: What a busy machine may take to draw the last step once the job has ended.
DRAWN_S = 30.0
#: Notes every drawing of the loss chart: [newest step on it, when (ms since the epoch)].
NOTE_DRAWINGS = """() => {
  window.drawings = [];
  new MutationObserver((changes) => {
    for (const { target } of changes) {
      if (!target.closest('[aria-label="Loss chart"]') || !target.dataset.lastStepAt) continue;
      window.drawings.push([Number(target.dataset.lastStep), Number(target.dataset.lastStepAt)]);
    }
  }).observe(document, { subtree: true, attributes: true, attributeFilter: ["data-last-step", "data-last-step-at"] });
}"""
LAST_IS_DRAWN = "(steps) => window.drawings.some(([step]) => step >= steps)"


def spec(steps: int = STEPS) -> dict[str, Any]:
    return {
        "name": "live",
        "resources": {"nodes": 2},
        "model": {"kind": "gpt", "layers": 2, "heads": 2, "dim": 64, "context": 64},
        "data": {"kind": "stdlib_text"},
        "training": {"steps": steps, "global_batch_size": 16, "eval_every_steps": None},
        "checkpoint": {"every_steps": None},
    }


def open_page(page: Page, job_id: str, server: str) -> None:
    """Open the page of a job, and let it note every drawing of the loss chart from then on."""
    page.goto(f"{server}/jobs/{job_id}")
    page.evaluate(NOTE_DRAWINGS)


def watch(page: Page, steps: int, ended: Callable[[], bool]) -> list[tuple[int, float]]:
    """Wait until the job on the page has ended and its last step is drawn. Returns every drawing: (newest step on it, seconds since the epoch)."""
    deadline = time.monotonic() + TIMEOUT_S
    while not ended():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the job has not ended within {TIMEOUT_S:g} s")
        page.wait_for_timeout(200)
    page.wait_for_function(LAST_IS_DRAWN, arg=steps, timeout=DRAWN_S * 1000)
    return [(int(step), milliseconds / 1000) for step, milliseconds in page.evaluate("window.drawings")]


def delays(drawings: list[tuple[int, float]], steps: list[int], times: list[float]) -> list[float]:
    """Seconds from each step's record to the first drawing that shows it; steps from before the page was open are left out."""
    if not drawings:
        raise RuntimeError("the loss chart was never drawn")
    first_shown = drawings[0][0]
    shown = []
    for step, recorded in zip(steps, times, strict=True):
        if step > first_shown:
            shown.append(next(at for newest, at in drawings if newest >= step) - recorded)
    return shown


def measure() -> list[Figure]:
    executable = chromium_executable()
    if executable is None:
        raise RuntimeError("no Chromium: install it, or set PACELINE_TEST_CHROMIUM")
    with stack() as client, chromium(executable) as browser:
        page = browser.new_page()
        page.goto(login_link(client))
        page.wait_for_url("**/jobs*")
        job_id = str(client.create("/training/jobs", spec())["id"])
        open_page(page, job_id, client.settings.url)
        seconds = delays(watch(page, STEPS, lambda: has_ended(client.job(job_id))), *_recorded(client, job_id))
    return [summarize("step_to_browser_s", "s", seconds, "goal: under 1 s at p95")]


def _recorded(client: RestClient, job_id: str) -> tuple[list[int], list[float]]:
    (curve,) = client.get(f"/metrics/jobs/{job_id}", names="loss")["curves"]
    return curve["steps"], curve["times"]


if __name__ == "__main__":
    run(measure, __doc__)
