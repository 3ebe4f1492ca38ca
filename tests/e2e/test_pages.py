"""Every page of a real stack, in both themes: nothing that axe calls serious, and nothing in the browser's console."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, StorageState, expect

from tests.e2e.specs import tiny_gpt
from tests.e2e.stack import ROOT, Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

AXE = ROOT / "dashboard" / "node_modules" / "axe-core" / "axe.min.js"
Theme = Literal["dark", "light"]

#: Of each page, a text that stands there once it is drawn.
PAGES = {
    "/jobs": "broken",
    "/jobs?status=paused": "No job matches",
    "/jobs/new": "starts now",
    "/jobs/new?view=yaml": "starts now",
    "/cluster": "local-2",
    "/nowhere": "There is no such page",
}
JOB_TABS = {
    "curves": "nats at step 20",
    "logs": "completed 20 steps",
    "ranks": "local-2",
    "checkpoints": "latest",
    "timeline": "was submitted",
    "spec": "stdlib_text",
}

FIND = """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations
    .filter(({impact}) => impact === "serious" || impact === "critical")
    .map(({id, impact, nodes}) => `${impact} ${id}: ${nodes.map(({html, failureSummary}) => html.slice(0, 200) + " " + failureSummary).join(" | ")}`)"""


@pytest.fixture(scope="module")
def jobs(stack: Stack) -> dict[str, str]:
    """One job that completed, one that failed and one that waits for ever."""
    code = str(Path(__file__).parent / "user_code")
    broken: dict[str, Any] = {"model": None, "data": None, "entrypoint": "broken_task:make_task", "fault_tolerance": {"max_restarts": 0}}
    specs = {
        "completed": tiny_gpt("whole", steps=20, checkpoint_every=10),
        "failed": tiny_gpt("broken", steps=50, environment={"working_directory": code}, **broken),
        "queued": tiny_gpt("wide", steps=20, nodes=8),
    }
    ids = {state: stack.submit(spec) for state, spec in specs.items()}
    for state, job_id in ids.items():
        stack.wait_for_state(job_id, state)
    return ids


@pytest.fixture(scope="module")
def session(stack: Stack, browser: Browser) -> StorageState:
    context = browser.new_context()
    page = context.new_page()
    page.goto(stack.login_link())
    page.wait_for_url("**/jobs*")
    state = context.storage_state()
    context.close()
    return state


class Watched:
    """A page that keeps what went wrong on it."""

    def __init__(self, page: Page, server: str) -> None:
        self.page = page
        self.server = server
        self.wrong: list[str] = []
        page.on("pageerror", lambda error: self.wrong.append(f"{page.url}: uncaught {error}"))
        page.on("console", self._note)

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(f"{self.page.url}: {message.type} {message.text}")

    def look(self, path: str, text: str) -> None:
        self.page.goto(self.server + path)
        expect(self.page.get_by_text(text, exact=False).first).to_be_visible()
        self.check()

    def check(self) -> None:
        if not self.page.evaluate("typeof axe === 'object'"):
            self.page.evaluate(AXE.read_text())
        self.wrong += [f"{self.page.url}: {finding}" for finding in self.page.evaluate(FIND)]


@pytest.fixture(params=["dark", "light"])
def watched(request: pytest.FixtureRequest, browser: Browser, stack: Stack, session: StorageState) -> Iterator[Watched]:
    theme: Theme = request.param
    # Without motion: axe would measure the contrast of what is still fading in.
    context = browser.new_context(
        viewport={"width": 1440, "height": 900}, color_scheme=theme, reduced_motion="reduce", storage_state=session
    )
    context.set_default_timeout(20_000)
    yield Watched(context.new_page(), stack.server)
    context.close()


def test_the_pages_are_accessible_and_free_of_errors(watched: Watched, jobs: dict[str, str]) -> None:
    for path, text in PAGES.items():
        watched.look(path, text)
    for tab, text in JOB_TABS.items():
        watched.look(f"/jobs/{jobs['completed']}?tab={tab}", text)
    watched.look(f"/jobs/{jobs['failed']}", "the sample of doom")
    watched.look(f"/jobs/{jobs['queued']}", "needs 8 nodes")
    assert not watched.wrong, "\n".join(watched.wrong)


def test_the_dialogs_are_accessible_and_free_of_errors(watched: Watched, jobs: dict[str, str]) -> None:
    page = watched.page
    watched.look("/cluster?add=true", "paceline worker")
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    page.keyboard.type("whole")
    expect(page.get_by_role("option", name="whole")).to_be_visible()
    watched.check()
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{jobs['completed']}")
    page.goto(f"{watched.server}/jobs/{jobs['queued']}")
    page.get_by_role("button", name="Cancel job").click()
    expect(page.get_by_role("dialog")).to_contain_text("wide")
    watched.check()
    assert not watched.wrong, "\n".join(watched.wrong)


def test_without_a_session_there_is_only_the_sign_in(browser: Browser, stack: Stack) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{stack.server}/cluster")
    expect(page.get_by_text("paceline login-link", exact=False).first).to_be_visible()
    assert "local-1" not in page.content()
    context.close()


def signed_in(stack: Stack, browser: Browser, path: str) -> Page:
    """A page with a session of its own, at `path`."""
    page = browser.new_context().new_page()
    page.context.set_default_timeout(20_000)
    page.goto(stack.login_link())
    page.wait_for_url("**/jobs*")
    page.goto(stack.server + path)
    return page


def test_a_page_left_open_leads_to_the_sign_in_when_its_session_ends_elsewhere(browser: Browser, stack: Stack) -> None:
    page = signed_in(stack, browser, "/jobs/new")  # asks for nothing by itself
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    end = "async () => fetch('/api/v1/auth/logout', {method: 'POST', headers: {'X-CSRF-Token': (await (await fetch('/api/v1/auth/me')).json()).csrf_token}})"
    page.evaluate(f"({end})().then((answer) => answer.status)")
    page.wait_for_url("**/login?next=%2Fjobs%2Fnew", timeout=20_000)
    page.context.close()


def test_an_open_page_says_that_it_is_stale_while_the_coordinator_is_dead_and_recovers_by_itself(browser: Browser, stack: Stack) -> None:
    page = signed_in(stack, browser, "/cluster")
    node = page.get_by_label("Node local-1")
    expect(node).to_be_visible()
    stack.kill_coordinator()
    stale = page.get_by_text("Stale: last news")
    expect(stale.first).to_be_visible(timeout=20_000)
    expect(node).to_be_visible()
    stack.up(int(stack.server.rpartition(":")[2]))
    expect(stale).to_have_count(0, timeout=30_000)
    expect(page.get_by_text("Live", exact=True)).to_be_visible(timeout=30_000)
    page.context.close()
