"""The documentation as a browser shows it: reached from the dashboard, without a script that its rules refuse, with a search that finds."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SECONDS_30 = 30_000


def test_the_documentation_is_read_and_searched_in_the_browser(stack: Stack, page: Page) -> None:
    told: list[str] = []
    page.on("console", lambda message: told.append(message.text) if message.type in ("error", "warning") else None)
    page.goto(f"{stack.server}/docs")
    expect(page.get_by_role("heading", name="Paceline", level=1)).to_be_visible(timeout=SECONDS_30)
    page.get_by_role("link", name="Your first hour").first.click()
    expect(page.get_by_role("heading", name="Your first hour")).to_be_visible(timeout=SECONDS_30)
    page.get_by_placeholder("Search").fill("slots_per_node")
    found = page.locator(".md-search-result__item").first
    expect(found).to_be_visible(timeout=SECONDS_30)
    found.get_by_role("link").first.click()
    expect(page).to_have_url(re.compile(r"/docs/(?!first_hour)"), timeout=SECONDS_30)
    assert told == []
