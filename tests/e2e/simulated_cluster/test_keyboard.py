"""Thirty things that people do on the dashboard, each by keyboard alone.

`pytest tests/e2e/simulated_cluster/test_keyboard.py -s` prints the table of them.
"""

from __future__ import annotations

import inspect
import json
import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Error, Route, expect

from tests.e2e.simulated_cluster import keyboard, keyboard_tasks
from tests.e2e.simulated_cluster.keyboard import DRAWN_MS, Hands, KeyboardWorld
from tests.e2e.simulated_cluster.keyboard_tasks import TASKS
from tests.e2e.simulated_cluster.simulation import Simulated

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def world(simulated: Simulated, browser: Browser) -> Iterator[KeyboardWorld]:
    context = browser.new_context(viewport={"width": 1440, "height": 1000}, reduced_motion="reduce")
    context.set_default_timeout(DRAWN_MS)
    expect.set_options(timeout=DRAWN_MS)
    yield KeyboardWorld(Hands(context.new_page(), simulated.server), simulated.client, browser)
    context.close()


def test_no_task_has_a_mouse_or_puts_the_focus_somewhere() -> None:
    assert len(TASKS) >= 25
    for module in (keyboard, keyboard_tasks):
        source = inspect.getsource(module)
        assert not re.search(r"\.(click|dblclick|focus|mouse|hover|tap|check|fill|set_checked|select_option|dispatch_event)\b", source), (
            module
        )


def test_a_job_whose_plan_changed_meanwhile_is_submitted_again(world: KeyboardWorld) -> None:
    """A fault of the simulated cluster between the plan and the submit, which comes now and then: here it comes twice."""
    page, told = world.hands.page, list[str]()

    def change_twice(route: Route) -> None:
        if route.request.method != "POST" or len(told) == 2:
            return route.continue_()
        told.append(route.request.url)
        problem = {"status": 409, "title": "The plan would be another by now", "detail": "", "code": "plan_changed", "request_id": "x"}
        return route.fulfill(status=409, content_type="application/problem+json", body=json.dumps(problem))

    page.route(keyboard_tasks.JOBS, change_twice)
    TASKS["change a number of a job before it is submitted"](world)
    page.unroute(keyboard_tasks.JOBS)
    assert len(told) == 2


def test_everything_can_be_done_by_keyboard_alone(world: KeyboardWorld) -> None:
    failed: list[str] = []
    print()
    for number, (name, act) in enumerate(TASKS.items(), 1):
        began = time.monotonic()
        try:
            act(world)
            outcome = "done"
        except (AssertionError, TimeoutError, Error) as error:
            outcome = "NOT DONE"
            page = world.hands.page
            failed.append(f"{name}: {error}\nat {page.url}, which alerts {page.get_by_role('alert').all_inner_texts()}")
        print(f"{number:3}  {name:52} {outcome:8} {time.monotonic() - began:6.1f} s")
    assert not failed, "\n\n".join(failed)
