"""One stack and one browser per test module: real processes, real pages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from scripts.browser import chromium, chromium_executable
from tests.e2e.stack import ROOT, Stack
from tests.ports import free_port


@pytest.fixture(scope="module")
def empty_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Nothing started yet; whatever the test starts is taken down, and nothing may be left."""
    stack = Stack(tmp_path_factory.mktemp("stack"))
    yield stack
    stack.down()
    left = [(process.pid, process.cmdline()) for process in stack.processes()]
    assert not left, f"left behind: {left}"


@pytest.fixture(scope="module")
def stack(empty_stack: Stack) -> Stack:
    """A coordinator and two agents with one slot each."""
    empty_stack.up(free_port())
    return empty_stack


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    executable = chromium_executable()
    missing = "no Chromium: set PACELINE_TEST_CHROMIUM" if executable is None else "no dashboard: run npm run build in dashboard/"
    if executable is None or not (ROOT / "dashboard" / "dist" / "index.html").exists():
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    with chromium(executable) as browser:
        yield browser


@pytest.fixture
def page(browser: Browser, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Page]:
    """A fresh profile; a failing test tells what stood on the page, and leaves a screenshot beside its other files."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(20_000)
    page = context.new_page()
    failed_before = request.session.testsfailed
    yield page
    if request.session.testsfailed > failed_before:
        print(page.url, page.evaluate("document.visibilityState"), page.inner_text("body"), sep="\n")
        page.screenshot(path=tmp_path / "failed.png", full_page=True)
    context.close()
