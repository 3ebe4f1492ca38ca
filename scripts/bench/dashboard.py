"""How long people wait for the dashboard, in Chromium: what a first visit transfers, when it paints and when a new job can be submitted, clicks
from page to page, all with 10,000 jobs; a text that is rare in the log of a million lines; and `paceline --help`.

Goals: 300 KB, 1 s, 1 s, 100 ms for a click, 0.5 s for the search, 150 ms for the help. A click ends with the frame after the one in which the
page has its heading and nothing of it is loading.

    python -m scripts.bench.dashboard [--json FILE] [--quick]
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, Page
from sqlalchemy import text

from scripts.bench.edges.control import served, services
from scripts.bench.figures import Figure, run_shortened, summarize
from scripts.bench.jobs_page import JOBS, fill
from scripts.browser import chromium, chromium_executable

DRAWN_MS = 60_000
LINES, RARE_EVERY = 1_000_000, 250_000
PAGES = ("Jobs", "Experiments", "Cluster", "Checkpoints", "Models", "Storage", "Notifications", "People", "New job")
#: Until the page of this heading is drawn and has all that it asked for; in milliseconds.
DRAWN = """async ([name, click]) => {
    const began = performance.now();
    if (click) [...document.querySelectorAll("nav a")].find((link) => link.textContent.trim() === name).click();
    const isDrawn = () => document.querySelector("h1")?.textContent === name && !document.querySelector("main [aria-label^='Loading ']");
    while (!isDrawn()) await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    return performance.now() - began;
}"""
#: Since the address was asked for, in seconds: until something is painted, and until the job of the form can be submitted.
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000"
READY = """async () => {
    const submit = () => [...document.querySelectorAll("button")].find((each) => each.textContent.trim() === "Submit job");
    while (!submit() || submit().disabled || !document.body.innerText.includes("Effective spec")) await new Promise(requestAnimationFrame);
    return performance.now() / 1000;
}"""


class Visitor:
    """A person with a browser who has never been at this coordinator, but may come in."""

    def __init__(self, browser: Browser, server: str, link: str) -> None:
        self.server = server
        self.browser = browser
        context = browser.new_context()
        page = context.new_page()
        page.goto(link)
        page.wait_for_url("**/jobs*", timeout=DRAWN_MS)
        self.cookies = context.cookies()
        context.close()

    def visit(self, path: str) -> tuple[Page, list[int]]:
        """Open a page with nothing in the browser's cache. The list gets the bytes of each answer as they came over the wire."""
        context = self.browser.new_context(viewport={"width": 1440, "height": 900})
        context.add_cookies(self.cookies)  # type: ignore[arg-type]
        page = context.new_page()
        page.set_default_timeout(DRAWN_MS)
        received: list[int] = []
        wire = context.new_cdp_session(page)
        wire.send("Network.enable")
        wire.on("Network.loadingFinished", lambda event: received.append(int(event["encodedDataLength"])))
        page.goto(self.server + path)
        return page, received


def browse(server: str, link: str, rounds: int) -> list[Figure]:
    executable = chromium_executable()
    if executable is None:
        raise SystemExit("no Chromium: set PACELINE_TEST_CHROMIUM")
    sizes, paints, ready = list[float](), list[float](), list[float]()
    clicks: dict[str, list[float]] = {name: [] for name in PAGES}
    with chromium(executable) as browser:
        visitor = Visitor(browser, server, link)
        for _ in range(rounds):
            page, received = visitor.visit("/jobs")
            page.evaluate(DRAWN, ["Jobs", False])
            page.wait_for_load_state("networkidle")
            paints.append(page.evaluate(PAINTED))
            sizes.append(sum(received) / 1000)
            for name in PAGES:  # once for the parts of the program that are fetched when they are wanted
                page.evaluate(DRAWN, [name, True])
            for name in PAGES:
                clicks[name].append(page.evaluate(DRAWN, [name, True]))
            page.context.close()
            page, _ = visitor.visit("/jobs/new")
            ready.append(page.evaluate(READY))
            page.context.close()
    slowest = max(PAGES, key=lambda name: statistics.median(clicks[name]))
    told = f"to each of {len(PAGES)} pages, drawn with all that it asks for; goal 100"
    return [
        summarize("first_visit_kb", "KB", sizes, f"over the wire, of a list of {JOBS:,} jobs; goal 300"),
        summarize("first_paint_s", "s", paints, "nothing in the cache; goal 1.0"),
        summarize("new_job_ready_s", "s", ready, "nothing in the cache, until its plan is there and Submit works; goal 1.0"),
        summarize("page_click_ms", "ms", [each for page in clicks.values() for each in page], told),
        summarize("slowest_click_ms", "ms", clicks[slowest], f"to the page {slowest}"),
    ]


async def write_log(folder: Path, lines: int) -> str:
    """Store a log of so many lines. Returns its job's id."""
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :lines)"
    words = f"'step ' || i || ' loss 2.' || (i * 7919 % 10000) || CASE WHEN i % {RARE_EVERY} = 1 THEN ' a needle' ELSE '' END"
    async with services(folder) as made:
        async with made.write() as session:
            job = str((await session.execute(text("SELECT id FROM jobs ORDER BY id DESC LIMIT 1"))).scalar_one())
        async with made.metrics.write() as session:
            row = f"SELECT :job, 1, i % 2, 1750000000.0 + i, 'info', {words} FROM n"
            columns = "job_id, generation, rank, time, level, text"
            await session.execute(text(f"INSERT INTO log_lines ({columns}) {numbers} {row}"), {"job": job, "lines": lines})
    return job


async def search(client: httpx.AsyncClient, job: str, query: dict[str, Any], rounds: int) -> list[float]:
    """Ask for all lines with a text, page by page. Returns the seconds that each search took."""
    taken = []
    for _ in range(rounds):
        began, wanted, found = time.perf_counter(), {"limit": 200, **query}, 0
        while True:
            answer = (await client.get(f"/api/v1/training/jobs/{job}/logs", params=wanted)).raise_for_status().json()
            found += len(answer["items"])
            if answer["at_end"]:
                break
            wanted["after"] = answer["next_after"]
        assert found == LINES // RARE_EVERY, found
        taken.append(time.perf_counter() - began)
    return taken


def help_ms(rounds: int) -> list[float]:
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run([Path(sys.executable).with_name("paceline"), "--help"], check=True, stdout=subprocess.DEVNULL)
        taken.append(1000 * (time.perf_counter() - began))
    return taken


async def _measure(rounds: int) -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        key = await fill(Path(folder), JOBS)
        job = await write_log(Path(folder), LINES)
        async with served(Path(folder), key) as (client, _):
            me = (await client.get("/api/v1/auth/me")).raise_for_status().json()
            link = (await client.post(f"/api/v1/users/{me['user_id']}/login-link")).raise_for_status().json()["url"]
            figures = await asyncio.to_thread(browse, str(client.base_url).rstrip("/"), link, rounds)
            searched = await search(client, job, {"q": "a needle"}, rounds)
    return [
        *figures,
        summarize("log_search_s", "s", searched, f"{LINES // RARE_EVERY} of {LINES:,} lines; goal 0.5"),
        summarize("help_ms", "ms", help_ms(2 * rounds), "paceline --help; goal 150"),
    ]


def measure(quick: bool) -> list[Figure]:
    return asyncio.run(_measure(3 if quick else 9))


if __name__ == "__main__":
    run_shortened(measure, __doc__)
