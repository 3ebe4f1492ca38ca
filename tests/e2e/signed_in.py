"""A page of a stack's administrator, in a browser context of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Page

from tests.e2e.stack import Stack

WIDTH, PATIENCE_MS = 1280, 30_000


@contextmanager
def signed_in(stack: Stack, browser: Browser, *, height: int) -> Iterator[Page]:
    """A page that shows the jobs, `height` pixels high."""
    context = browser.new_context(viewport={"width": WIDTH, "height": height})
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    page.goto(stack.login_link())
    page.wait_for_url("**/jobs*")
    yield page
    context.close()
