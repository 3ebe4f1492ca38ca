"""Real processes, real pages. Modules whose tests harm only their own jobs share a stack in each process of pytest, which ends with the last of them;
what ends coordinators, removes nodes, or counts what there is, has a stack of its own."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from scripts.browser import chromium, chromium_executable
from tests.e2e.stack import ROOT, Stack
from tests.ports import free_port
from tests.processes import command_of


@contextlib.contextmanager
def taken_down(folder: Path) -> Iterator[Stack]:
    """Nothing started yet; whatever is started is taken down, and nothing may be left."""
    stack = Stack(folder)
    try:
        yield stack
    finally:
        stack.down()
    left = [(process.pid, command_of(process)) for process in stack.processes()]
    assert not left, f"left behind: {left}"


@pytest.fixture(scope="module")
def empty_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """This module's own. Nothing is started yet."""
    with taken_down(tmp_path_factory.mktemp("stack")) as stack:
        yield stack


@pytest.fixture(scope="module")
def own_stack(empty_stack: Stack) -> Stack:
    """This module's own coordinator, and two agents with one slot each."""
    empty_stack.up(free_port())
    return empty_stack


@pytest.fixture(scope="package")
def two_shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with taken_down(tmp_path_factory.mktemp("two")) as stack:
        stack.up(free_port(), agents=2)
        yield stack


@pytest.fixture(scope="package")
def three_shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with taken_down(tmp_path_factory.mktemp("three")) as stack:
        stack.up(free_port(), agents=3)
        yield stack


@pytest.fixture(scope="module")
def stack(two_shared: Stack) -> Iterator[Stack]:
    """A coordinator and two agents with one slot each, whole and idle; other modules have used it before."""
    yield two_shared
    two_shared.tidy(agents=2)


@pytest.fixture(scope="module")
def three_agents(three_shared: Stack) -> Iterator[Stack]:
    """The same with three agents. Tests may end them."""
    yield three_shared
    three_shared.tidy(agents=3)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """This module's own: while it is there, an event loop runs in this thread, and no other test can have one."""
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
