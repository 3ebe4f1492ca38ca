"""Every page of a real stack, in both themes: nothing that axe calls serious, and nothing in the browser's console."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, StorageState, expect

from tests.e2e.specs import tiny_gpt
from tests.e2e.stack import ROOT, Stack, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

# A deadline, not a pause: a loaded machine draws a page slowly.
expect.set_options(timeout=30_000)

AXE = ROOT / "dashboard" / "node_modules" / "axe-core" / "axe.min.js"
Theme = Literal["dark", "light"]

#: Of each page, a text that stands there once it is drawn.
PAGES = {
    "/jobs": "broken",
    "/jobs?status=paused": "No job matches",
    "/jobs/new": "starts now",
    "/jobs/new?view=yaml": "starts now",
    "/cluster": "local-2",
    "/storage": "Retention",
    "/experiments": "No experiments yet",
    "/experiments/new": "Configurations",
    "/notifications": "No channels",
    "/nowhere": "Page not found",
}
JOB_TABS = {
    "curves": "nats at step 20",
    "incidents": "No incidents",
    "logs": "completed 20 steps",
    "ranks": "local-2",
    "checkpoints": "latest",
    "timeline": "was submitted",
    "spec": "stdlib_text",
}

#: The time of each log line is a link in a line of text, as high as the text.
FIND = """async () => [
        ...(await axe.run(document, {resultTypes: ["violations"]})).violations,
        ...(await axe.run({exclude: [["[role=log]"]]}, {runOnly: ["target-size"], resultTypes: ["violations"]})).violations,
    ]
    .filter(({impact}) => impact === "serious" || impact === "critical")
    .map(({id, impact, nodes}) => `${impact} ${id}: ${nodes.map(({html, failureSummary}) => html.slice(0, 200) + " " + failureSummary).join(" | ")}`)"""


@pytest.fixture(scope="module")
def stack(own_stack: Stack) -> Stack:
    return own_stack


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


#: Enough for a kill to strike in the middle.
TWIN_STEPS = 200
CLOSES_UP: dict[str, Any] = {
    "fault_tolerance": {"recovery": "close_up"},
    "training": {"steps": TWIN_STEPS, "global_batch_size": 8, "micro_batch_size": 1, "eval_every_steps": None, "seed": 7},
}


def kill_rank(stack: Stack, job_id: str, rank: int, at_step: int) -> None:
    stack.wait_for_step(job_id, at_step)
    os.kill(next(each["pid"] for each in stack.job(job_id)["ranks"] if each["rank"] == rank), signal.SIGKILL)


@pytest.fixture(scope="module")
def twins(stack: Stack) -> dict[str, str]:
    """The same run twice: once undisturbed, once with a rank killed."""
    calm = stack.submit(tiny_gpt("calm", TWIN_STEPS) | CLOSES_UP)
    stack.wait_for_state(calm, "completed", timeout=120)
    killed = stack.submit(tiny_gpt("killed", TWIN_STEPS) | CLOSES_UP)
    kill_rank(stack, killed, rank=1, at_step=20)
    stack.wait_for_state(killed, "completed", timeout=120)
    return {"calm": calm, "killed": killed}


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
    context.set_default_timeout(30_000)
    yield Watched(context.new_page(), stack.server)
    context.close()


def test_the_pages_are_accessible_and_free_of_errors(watched: Watched, jobs: dict[str, str]) -> None:
    for path, text in PAGES.items():
        watched.look(path, text)
    for tab, text in JOB_TABS.items():
        watched.look(f"/jobs/{jobs['completed']}?tab={tab}", text)
    watched.look(f"/jobs/{jobs['failed']}", "the sample of doom")
    watched.look(f"/jobs/{jobs['queued']}", "needs 8 slots")
    assert not watched.wrong, "\n".join(watched.wrong)


def test_no_page_is_wider_than_a_phone(browser: Browser, stack: Stack, session: StorageState, jobs: dict[str, str]) -> None:
    context = browser.new_context(viewport={"width": 375, "height": 800}, storage_state=session)
    page = context.new_page()
    for path, text in [*PAGES.items(), (f"/jobs/{jobs['completed']}", "completed")]:
        page.goto(f"{stack.server}{path}")
        expect(page.get_by_text(text).first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 375, path
    context.close()


#: What a phone on a slow network should not wait for.
FIRST_VISIT_BYTES = 300_000


def test_a_first_visit_is_small(browser: Browser, stack: Stack, jobs: dict[str, str]) -> None:
    context = browser.new_context()
    page = context.new_page()
    network = context.new_cdp_session(page)
    network.send("Network.enable")
    sizes: list[float] = []
    network.on("Network.loadingFinished", lambda loaded: sizes.append(loaded["encodedDataLength"]))
    page.goto(stack.login_link())
    expect(page.get_by_role("link", name="broken")).to_be_visible()
    page.wait_for_load_state("networkidle")
    assert 50_000 < sum(sizes) < FIRST_VISIT_BYTES
    context.close()


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


def test_an_incident_is_told_on_the_curves_in_the_incident_log_and_beside_the_undisturbed_run(
    watched: Watched, twins: dict[str, str]
) -> None:
    page = watched.page
    watched.look(f"/jobs/{twins['killed']}", f"nats at step {TWIN_STEPS}")
    mark = page.get_by_role("toolbar", name="What happened: marks on Loss").get_by_role("button", name=re.compile("SIGKILL"))
    mark.focus()
    expect(page.get_by_role("tooltip")).to_contain_text("Rank 1 on local-2 was killed by SIGKILL")
    watched.check()
    page.keyboard.press("Enter")  # leads to the incident log
    row = page.get_by_role("table", name="Incidents").get_by_role("row", name=re.compile("killed by SIGKILL"))
    for text in ("recovered", "1 of 2"):
        expect(row).to_contain_text(text)
    page.get_by_role("button", name="Details: Rank 1 on local-2").click()
    expect(page.get_by_role("table", name="Phases of the outage").get_by_role("row")).to_have_count(8)
    expect(page.get_by_role("region", name="Goodput")).to_contain_text("Useful steps")
    watched.check()
    watched.look(f"/compare?jobs={twins['calm']},{twins['killed']}", "Same run, to the last bit")
    expect(
        page.get_by_text(re.compile(rf"calm: [\d.]+ nats at step {TWIN_STEPS}\. .*killed: [\d.]+ nats at step {TWIN_STEPS}\."))
    ).to_be_visible()
    assert not watched.wrong, "\n".join(watched.wrong)


@pytest.fixture
def second_node(stack: Stack) -> Iterator[str]:
    """A test may cordon it, so that whoever is lost there stays away."""
    (node,) = [node["id"] for node in stack.get("/cluster/nodes")["items"] if node["name"] == "local-2"]
    yield node
    stack.client.put(f"/cluster/nodes/{node}/uncordon").raise_for_status()


def test_an_open_page_tells_of_a_killed_rank_as_it_happens(browser: Browser, stack: Stack, session: StorageState, second_node: str) -> None:
    job_id = stack.submit(tiny_gpt("live", 2000) | CLOSES_UP | {"training": {**CLOSES_UP["training"], "steps": 2000}})
    context = browser.new_context(storage_state=session)
    page = context.new_page()
    page.goto(f"{stack.server}/jobs/{job_id}")
    expect(page.get_by_text("running", exact=True).first).to_be_visible()
    stack.client.put(f"/cluster/nodes/{second_node}/cordon").raise_for_status()
    kill_rank(stack, job_id, rank=1, at_step=10)
    expect(page.get_by_text("runs with 1 of 2 ranks", exact=True)).to_be_visible()
    expect(page.get_by_role("tab", name="Incidents 1")).to_be_visible()
    expect(
        page.get_by_role("button", name=re.compile(r"Gen 2 \(recovered\): Rank 1 on local-2 was killed by SIGKILL")).first
    ).to_be_visible()
    context.close()
    wait_until("the end of the job", lambda: is_cancelled(stack, job_id), 60)


def test_an_open_page_tells_how_the_reason_to_wait_changes(
    browser: Browser, stack: Stack, session: StorageState, jobs: dict[str, str]
) -> None:
    """Neither the state nor the intent of the job moves meanwhile, so that its revision does not."""
    context = browser.new_context(storage_state=session)
    page = context.new_page()
    page.goto(f"{stack.server}/jobs/{jobs['queued']}")
    expect(page.get_by_text("the cluster has 2 slots").first).to_be_visible()
    with stack.cordoned():
        expect(page.get_by_text("the cluster has 0 slots").first).to_be_visible()
    expect(page.get_by_text("the cluster has 2 slots").first).to_be_visible()
    context.close()


def is_cancelled(stack: Stack, job_id: str) -> bool:
    """Asks for it as long as it is not: every report of progress makes the revision stale."""
    job = stack.job(job_id)
    stack.client.delete(f"/training/jobs/{job_id}", headers={"If-Match": f'"{job["revision"]}"'})
    return bool(job["state"] == "cancelled")


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
    page.context.set_default_timeout(30_000)
    page.goto(stack.login_link())
    page.wait_for_url("**/jobs*")
    page.goto(stack.server + path)
    return page


def test_a_page_left_open_leads_to_the_sign_in_when_its_session_ends_elsewhere(browser: Browser, stack: Stack) -> None:
    page = signed_in(stack, browser, "/jobs/new")  # asks for nothing by itself
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    end = "async () => fetch('/api/v1/auth/logout', {method: 'POST', headers: {'X-CSRF-Token': (await (await fetch('/api/v1/auth/me')).json()).csrf_token}})"
    page.evaluate(f"({end})().then((answer) => answer.status)")
    page.wait_for_url("**/login?ended=true&next=%2Fjobs%2Fnew", timeout=20_000)
    expect(page.get_by_text("Your session has ended. Sign in again.")).to_be_visible()
    page.context.close()


def test_a_part_of_the_page_that_cannot_be_loaded_is_loaded_anew(browser: Browser, stack: Stack) -> None:
    page = signed_in(stack, browser, "/cluster")
    page.route("**/assets/SpecForm*.css", lambda route: route.abort("internetdisconnected"), times=1)
    page.get_by_role("link", name="New job").first.click()
    expect(page.get_by_role("button", name="Submit job")).to_be_visible()
    page.route("**/assets/ExperimentsPage*", lambda route: route.abort("internetdisconnected"))
    page.get_by_role("link", name="Experiments").first.click()
    expect(page.get_by_text("Could not load this page.")).to_be_visible()
    page.unroute("**/assets/ExperimentsPage*")
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_role("heading", name="Experiments")).to_be_visible()
    page.context.close()


def test_an_open_page_says_that_it_is_stale_while_the_coordinator_is_dead_and_recovers_by_itself(browser: Browser, stack: Stack) -> None:
    page = signed_in(stack, browser, "/cluster")
    node = page.get_by_label("Node local-1")
    expect(node).to_be_visible()
    stack.kill_coordinator()
    stale = page.get_by_text("Showing data from")
    expect(stale.first).to_be_visible(timeout=20_000)
    expect(node).to_be_visible()
    stack.up(int(stack.server.rpartition(":")[2]))
    expect(stale).to_have_count(0, timeout=30_000)
    expect(page.get_by_text("Live", exact=True)).to_be_visible(timeout=30_000)
    page.context.close()
