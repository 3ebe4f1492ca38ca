"""The log of a job in a browser: a long one is read line by line, backwards and forwards, and from its start, a line or a time on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.e2e.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

# A deadline, not a pause: a loaded machine draws a page slowly.
expect.set_options(timeout=30_000)

CODE = Path(__file__).parent / "user_code"
LINES = 3_000
WHEEL_PX, LINE_PX = 400, 20
#: What one turn of the wheel may pass, and no more: the browser may put two of them together.
MOST_PASSED = 3 * WHEEL_PX // LINE_PX
FIRST_NUMBER = """log => {
    const top = log.getBoundingClientRect().top;
    const shown = [...log.querySelectorAll("[data-index]")].filter(row => row.getBoundingClientRect().bottom > top + 1);
    shown.sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top);
    return shown.length ? shown[0].textContent : "";
}"""


@pytest.fixture
def page(stack: Stack, browser: Browser) -> Iterator[Page]:
    spec = {
        "name": "counting",
        "script": {"path": "counting_behind_bar.py", "args": [str(LINES)]},
        "resources": {"nodes": 1},
        "environment": {"working_directory": str(CODE)},
    }
    job = stack.wait_for_state(stack.submit(spec), "completed", timeout=90)
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    page = context.new_page()
    page.set_default_timeout(30_000)
    page.goto(stack.login_link())
    page.wait_for_url("**/jobs*")
    page.goto(f"{stack.server}/jobs/{job['id']}?tab=logs")
    yield page
    context.close()


def first_shown(log: Locator) -> int:
    """The number in the uppermost line; 0 for the progress bar above all numbers."""
    found = re.search(r"number (\d+)", log.evaluate(FIRST_NUMBER))
    return int(found[1]) if found else 0


def turn_wheel(page: Page, log: Locator, direction: int, to: int) -> None:
    """Turn the wheel until the line `to` is the uppermost one or has passed, and check that none was skipped."""
    before = first_shown(log)
    while (to - before) * direction > 0:
        at = log.evaluate("log => log.scrollTop")
        page.mouse.wheel(0, direction * WHEEL_PX)
        page.wait_for_function("([log, at]) => log.scrollTop !== at", arg=[log.element_handle(), at])
        now = first_shown(log)
        assert -1 <= (now - before) * direction <= MOST_PASSED, f"from number {before} to {now}"
        before = now


def test_a_long_log_is_read_both_ways_without_a_jump(page: Page) -> None:
    log = page.get_by_role("log")
    expect(log.get_by_text(f"number {LINES}", exact=True)).to_be_visible()
    log.hover()
    turn_wheel(page, log, -1, to=1_500)
    turn_wheel(page, log, +1, to=2_500)


def test_the_start_and_a_line_are_jumped_to_and_read_on_from(page: Page) -> None:
    log = page.get_by_role("log")
    page.get_by_role("button", name="Jump to").click()
    page.get_by_role("button", name="Start").click()
    expect(log.get_by_text("100%", exact=True)).to_be_visible()  # the bar as it ended
    log.hover()
    turn_wheel(page, log, +1, to=900)
    page.get_by_role("button", name="Jump to").click()
    page.get_by_label("Line or time").fill("2001")
    page.get_by_label("Line or time").press("Enter")
    expect(log.get_by_text("number 2000", exact=True)).to_be_visible()
    log.hover()
    turn_wheel(page, log, -1, to=1_700)
    page.get_by_role("button", name="Newest lines").click()
    expect(log.get_by_text(f"number {LINES}", exact=True)).to_be_visible()
