"""A person who has a keyboard and no mouse: Tab, arrows, Enter and shortcuts, nothing else."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
from playwright.sync_api import Browser, Page, expect

from tests.e2e.stack import wait_until

#: The accessible name of what has the focus, near enough: its label, what labels it, its text, its placeholder.
NAME = """() => {
    const e = document.activeElement;
    const ids = (e.getAttribute("aria-labelledby") || "").split(" ").filter(Boolean);
    const labelled = ids.map((id) => document.getElementById(id)?.textContent || "").join(" ");
    const labels = e.labels ? [...e.labels].map((l) => l.textContent).join(" ") : "";
    const name = e.getAttribute("aria-label") || labelled || labels || e.textContent || e.getAttribute("placeholder") || e.tagName;
    return name.trim().replace(/\\s+/g, " ").slice(0, 120);
}"""
MOST_TABS = 220
#: Deadlines, not pauses: a loaded machine draws a page slowly, and what has been asked for comes after others.
SECONDS = 120.0
DRAWN_MS = 60_000


class Hands:
    """Reaches what is on the page from the keyboard alone. `server` is the coordinator's address."""

    def __init__(self, page: Page, server: str) -> None:
        self.page = page
        self.server = server

    def open(self, path: str, text: str) -> None:
        """Type an address, and wait until the page is drawn."""
        self.page.goto(self.server + path)
        expect(self.page.get_by_text(text, exact=False).first).to_be_visible()

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def type(self, text: str) -> None:
        self.page.keyboard.type(text)

    def replace(self, text: str) -> None:
        """Type over what a field holds."""
        self.press("Control+a")
        self.type(text)

    def focused(self) -> str:
        return str(self.page.evaluate(NAME))

    def to(self, name: str, key: str = "Tab") -> None:
        """Press Tab until what has the focus is called so (a regular expression), again from the start while the page may still be loading.
        Raises AssertionError with the stops that there were."""
        stops: list[str] = []
        deadline = time.monotonic() + DRAWN_MS / 1000
        while len(stops) < MOST_TABS or time.monotonic() < deadline:
            self.press(key)
            stops.append(self.focused())
            if re.search(name, stops[-1]):
                return
        raise AssertionError(f"no stop of {key} is called {name!r}: {list(dict.fromkeys(stops))}")

    def back_to(self, name: str) -> None:
        self.to(name, "Shift+Tab")

    def choose(self, option: str) -> None:
        """Open the list that has the focus, and choose an option by its beginning."""
        self.press("ArrowDown")
        expect(self.page.get_by_role("option").first).to_be_visible()
        names = [text.strip() for text in self.page.get_by_role("option").all_inner_texts()]
        wanted = next(index for index, name in enumerate(names) if name.startswith(option))
        for _ in range(2 * len(names) + 2):
            selected = self.page.locator("[role=option][data-combobox-selected]")
            if selected.count() and selected.inner_text().strip() == names[wanted]:
                break
            self.press("ArrowDown")
        self.press("Enter")

    def pick(self, item: str) -> None:
        """Choose from the menu that has just been opened."""
        expect(self.page.get_by_role("menuitem", name=item, exact=True)).to_be_visible()
        self.to(f"^{re.escape(item)}$", "ArrowDown")
        self.press("Enter")

    def command(self, words: str) -> None:
        """Go somewhere by the command palette."""
        self.press("Control+k")
        expect(self.page.get_by_role("combobox", name="Command")).to_be_focused()
        self.type(words)
        expect(self.page.get_by_role("option", name=re.compile(re.escape(words), re.IGNORECASE)).first).to_be_visible()
        self.press("Enter")


@dataclass(frozen=True)
class KeyboardWorld:
    """The hands, the coordinator's REST interface, and its demo jobs by name."""

    hands: Hands
    client: httpx.Client
    browser: Browser

    def get(self, path: str, **query: Any) -> Any:
        answer = self.client.get(f"/api/v1{path}", params=query)
        assert answer.is_success, answer.text
        return answer.json()

    def job(self, name: str) -> dict[str, Any]:
        """The newest job of this name."""
        found = self.get("/training/jobs", q=name, limit=50, archived="include")["items"]
        return dict(next(job for job in found if job["name"] == name))

    def await_job(self, name: str, what: str, holds: Callable[[dict[str, Any]], bool]) -> None:
        def probe() -> bool:
            found = [job for job in self.get("/training/jobs", q=name, limit=50, archived="include")["items"] if job["name"] == name]
            return bool(found) and holds(found[0])

        wait_until(f"{name}: {what}", probe, SECONDS)
