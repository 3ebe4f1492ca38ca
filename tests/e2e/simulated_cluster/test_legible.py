"""What is written on a page has room: measured in a real browser, where a stylesheet acts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.e2e.simulated_cluster.simulation import Simulated

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

# A deadline, not a pause: a loaded machine draws a page slowly.
expect.set_options(timeout=30_000)
HEIGHT = 1000


@pytest.fixture(scope="module")
def page(simulated: Simulated, browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1440, "height": HEIGHT}, base_url=simulated.server)
    yield context.new_page()
    context.close()


def height_of(part: Locator) -> float:
    box = part.bounding_box()
    assert box is not None
    return box["height"]


def test_a_short_document_is_edited_in_a_tall_field_above_a_closed_bar(page: Page) -> None:
    page.goto("/jobs/new?view=yaml")
    text = page.get_by_label("Job spec as YAML")
    text.fill("version: 1\nname: short")
    expect(page.get_by_text("Fix the problem first.")).to_be_visible()
    assert height_of(text) >= 300
    bar = page.get_by_role("button", name="Submit job").locator("xpath=ancestor::div[@class][1]")
    assert bar.evaluate("bar => getComputedStyle(bar).borderBottomWidth") == "1px"


def test_the_step_range_has_room_for_what_its_fields_are_called(page: Page, simulated: Simulated) -> None:
    job = simulated.jobs()["gpt-1b-fsdp"]
    page.goto(f"/jobs/{job['id']}")
    for name in ("From step", "To step"):
        field = page.get_by_role("textbox", name=name)
        field.fill(name)
        assert field.evaluate("field => field.scrollWidth <= field.clientWidth"), name


def test_a_chosen_metric_is_read_in_the_middle_of_its_pill(page: Page, simulated: Simulated) -> None:
    jobs = simulated.jobs()
    first, second = (jobs[name]["id"] for name in ("gpt-1b-fsdp", "resnet-56-lr-1"))
    page.goto(f'/compare?jobs=["{first}","{second}"]')
    label = page.locator(".mantine-Pill-label").filter(has_text="Loss").first
    expect(label).to_be_visible()
    size, line = label.evaluate("label => [getComputedStyle(label).fontSize, getComputedStyle(label).lineHeight]")
    assert (float(size.removesuffix("px")) >= 12, float(line.removesuffix("px"))) == (True, height_of(label))


@pytest.mark.parametrize("width", [1360, 390])
def test_a_chart_with_a_long_legend_keeps_its_buttons_side_by_side(page: Page, simulated: Simulated, width: int) -> None:
    page.set_viewport_size({"width": width, "height": HEIGHT})
    page.goto(f"/jobs/{simulated.jobs()['gpt-7b-tensor']['id']}")
    boxes = [page.get_by_role("button", name=name).bounding_box() for name in ("Step time as a table", "Actions for Step time")]
    tops = {box["y"] for box in boxes if box}
    assert len(tops) == 1, boxes
