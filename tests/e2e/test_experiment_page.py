"""An experiment in a real browser, with real trials: varied from a job in the form, followed while it runs, read, exported and compared."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.signed_in import signed_in
from tests.e2e.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

# A deadline, not a pause: a loaded machine draws a page slowly.
expect.set_options(timeout=30_000)

#: The slowest of what is waited for: three trials, one after the other, on a loaded machine.
TRIALS_MS = 180_000
STEPS = 40
JOB = {
    "name": "perceptron",
    "model": {"kind": "mlp", "hidden": [32]},
    "data": {"kind": "digits"},
    "optimizer": {"kind": "sgd", "lr": 0.1},
    "training": {"steps": STEPS, "global_batch_size": 32, "eval_every_steps": None},
    "checkpoint": {"every_steps": None},
}
#: One process, two replicas, two shards.
TRIALS = 3


@pytest.fixture
def page(stack: Stack, browser: Browser) -> Iterator[Page]:
    with signed_in(stack, browser, height=1600) as page:
        yield page


def test_a_job_is_varied_in_the_form_and_its_trials_are_watched_read_exported_and_compared(
    stack: Stack, page: Page, tmp_path: Path
) -> None:
    job_id = stack.submit(JOB)
    stack.wait_for_state(job_id, "completed", timeout=120)
    page.goto(f"{stack.server}/jobs/{job_id}")
    page.get_by_role("link", name="Vary this").click()
    with stack.cordoned():
        vary_ranks_and_strategies(page)
        see_the_trials_wait(page)
    see_the_trials_end(page)
    read_the_results(page)
    export(page, tmp_path)
    compare_two_trials(page)


def vary_ranks_and_strategies(page: Page) -> None:
    expect(page.get_by_label("Name", exact=True).first).to_have_value("perceptron-varied")
    page.get_by_label("Ranks", exact=True).fill("1, 2")
    page.get_by_role("combobox", name="Strategies").click(force=True)  # its box lies over it
    for strategy in ("ddp", "fsdp"):
        page.get_by_role("option", name=strategy, exact=True).click()
    page.keyboard.press("Escape")
    planned = page.get_by_role("table", name="Planned configurations")
    expect(planned.locator("tbody tr")).to_have_count(TRIALS)
    page.get_by_role("button", name=f"Start {TRIALS} trials").click()
    expect(page.get_by_role("heading", name="perceptron-varied", level=1)).to_be_visible()


def see_the_trials_wait(page: Page) -> None:
    page.get_by_role("tab", name="Trials").click()
    rows = page.get_by_role("table", name="Trials").locator("tbody tr")
    expect(rows).to_have_count(TRIALS)
    expect(rows.last).to_contain_text("waiting")


def see_the_trials_end(page: Page) -> None:
    """Without a reload."""
    rows = page.get_by_role("table", name="Trials").locator("tbody tr")
    expect(rows.filter(has_text=f"{STEPS} / {STEPS}").filter(has_text="completed")).to_have_count(TRIALS, timeout=TRIALS_MS)


def read_the_results(page: Page) -> None:
    page.get_by_role("tab", name="Results").click()
    said = page.get_by_role("region", name="Interpretation")
    expect(said.get_by_text(f"{TRIALS} of {TRIALS} trials completed")).to_be_visible()  # a newer analysis comes by itself
    expect(said.locator("[data-kind=recommendation] li")).to_have_text(re.compile(r"^Take .+ samples per second .+ configurations\."))
    expect(said.locator("[data-kind=finding] li").filter(has_text="take fsdp above")).to_contain_text("parameters at the latest")
    expect(said.locator("[data-kind=doubt] li").filter(has_text="ran once only")).to_be_visible()
    expect(page.get_by_role("table", name="Configurations").locator("tbody tr")).to_have_count(TRIALS)
    figure = page.get_by_role("region", name="Scaling efficiency")
    expect(figure.get_by_role("img", name=re.compile("fsdp keeps .+ on 2 ranks"))).to_be_visible()
    figure.get_by_role("button", name="Scaling efficiency as a table").click()
    expect(figure.get_by_role("table").locator("tbody tr").filter(has_text="fsdp").first).to_be_visible()


def export(page: Page, folder: Path) -> None:
    report, table = (downloaded(page, choice, folder) for choice in ("Report (HTML)", "Configurations (CSV)"))
    assert "<svg" in report
    assert "perceptron-varied" in report
    rows = list(csv.DictReader(table.splitlines()))
    assert [(row["strategy"], row["world_size"]) for row in rows] == [("single", "1"), ("ddp", "2"), ("fsdp", "2")]
    assert all(float(row["samples_per_second"]) > 0 for row in rows)


def downloaded(page: Page, choice: str, folder: Path) -> str:
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as download:
        page.get_by_role("menuitem", name=choice).click()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path.read_text()


def compare_two_trials(page: Page) -> None:
    page.get_by_role("tab", name="Trials").click()
    page.get_by_role("link", name="Jobs of all trials").click()
    for index in (1, 2):
        page.get_by_role("checkbox", name=f"Select perceptron-varied-{index}").click()
    page.get_by_role("link", name="Compare 2 jobs").click()
    page.wait_for_url("**/compare*")
    expect(page.get_by_text("parallelism.strategy")).to_be_visible()
