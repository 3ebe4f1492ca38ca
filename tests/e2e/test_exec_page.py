"""The page's terminal beside a real rank, and a trace handed to a stand-in of Perfetto's page, under the page's own content security policy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from tests.e2e.axe import findings
from tests.e2e.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
SECONDS_MS = 60_000
TRACE = b'{"traceEvents": []}'
#: Answers pings as ui.perfetto.dev does, and shows what it was handed.
PERFETTO = """<!doctype html><title>stand-in</title><p id="got"></p><script>
addEventListener("message", ({ source, data }) => {
  if (data === "PING") source.postMessage("PONG", "*");
  else if (data.perfetto) document.getElementById("got").textContent =
    `${data.perfetto.title}: ${new TextDecoder().decode(data.perfetto.buffer)}`;
});
</script>"""


@pytest.fixture
def job(stack: Stack, tmp_path: Path) -> Iterator[str]:
    (tmp_path / "waiting.py").write_text("import time; time.sleep(3600)")
    job_id = stack.submit({"name": "page", "resources": {"nodes": 2}, "script": {"path": str(tmp_path / "waiting.py"), "grace_seconds": 1}})
    stack.wait_for_state(job_id, "running")
    yield job_id
    stack.cancel(job_id)


def test_a_shell_on_the_page(stack: Stack, job: str, page: Page) -> None:
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.goto(stack.login_link())
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible(timeout=SECONDS_MS)  # signed in
    page.goto(f"{stack.server}/jobs/{job}?tab=terminal")
    page.get_by_label("Rank").select_option("1")
    page.get_by_role("button", name="Open terminal").click()
    status = page.get_by_role("status").filter(has_text=re.compile("rank 1|exit code|ended"))
    expect(status).to_contain_text("runs beside rank 1", timeout=SECONDS_MS)
    page.keyboard.type("echo rank $((RANK + 41)) of $WORLD_SIZE\n")
    expect(page.get_by_role("group", name="Terminal beside rank 1")).to_contain_text("rank 42 of 2", timeout=SECONDS_MS)
    assert findings(page) == []
    page.keyboard.press("Shift+F6")
    expect(page.get_by_role("button", name="End session")).to_be_focused()
    page.locator(".xterm-helper-textarea").focus()
    page.keyboard.type("exit 3\n")
    expect(status).to_have_text("Ended with exit code 3.", timeout=SECONDS_MS)
    assert complaints == []


def show_a_trace(stack: Stack, job: str, page: Page) -> None:
    """Open the page of a job that has left a trace, as the API would list it."""
    trace = {"id": "t1", "job_id": job, "kind": "trace", "state": "ready", "rank": 0, "generation": 1, "first_step": 3, "last_step": 5}
    trace |= {"bytes": len(TRACE), "created_at": "2026-11-25T12:00:00Z", "error": None, "name": "trace.json", "sha256": None}
    page.route("**/artifacts?*", lambda route: route.fulfill(json={"items": [trace], "next_cursor": None}))
    page.route("**/artifacts/t1/content", lambda route: route.fulfill(body=TRACE, content_type="application/octet-stream"))
    page.goto(stack.login_link())
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible(timeout=SECONDS_MS)  # signed in
    page.goto(f"{stack.server}/jobs/{job}?tab=performance")


def test_a_trace_opens_in_perfetto_within_the_browser(stack: Stack, job: str, page: Page) -> None:
    sent: list[str] = []

    def stand_in(route: Route) -> None:
        sent.append(f"{route.request.method} {route.request.post_data or ''}")
        route.fulfill(body=PERFETTO, content_type="text/html")

    page.context.route("https://ui.perfetto.dev/**", stand_in)
    show_a_trace(stack, job, page)
    with page.context.expect_page() as opened:
        page.get_by_role("button", name="Open in Perfetto").click()
    expect(opened.value.locator("#got")).to_have_text(f"page, rank 0, steps 3 to 5: {TRACE.decode()}", timeout=SECONDS_MS)
    assert sent == ["GET "]


def test_without_a_network_the_download_is_offered(stack: Stack, job: str, page: Page) -> None:
    page.context.route("https://ui.perfetto.dev/**", lambda route: route.abort())
    show_a_trace(stack, job, page)
    page.get_by_role("button", name="Open in Perfetto").click()
    alert = page.get_by_role("alert").filter(has_text="has not answered within 20 s")
    expect(alert.get_by_role("link", name="Download the trace")).to_be_visible(timeout=SECONDS_MS)
