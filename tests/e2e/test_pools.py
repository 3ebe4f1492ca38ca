"""Pools on the page Cluster in a real browser: made, changed and deleted by people, refused at their line, and why none grows for a job."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.e2e.signed_in import signed_in
from tests.e2e.specs import tiny_gpt
from tests.e2e.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

# A deadline, not a pause: a loaded machine draws a page slowly.
expect.set_options(timeout=30_000)

POOL = """name: desks
provider: {type: manual}
max_nodes: 3
labels: {zone: a}
"""
SPENT = """name: spent
provider: {type: slurm, partition: gpu}
slots: 4
max_nodes: 2
autoscale: {device: cpu, budget_node_hours: 0}
"""


@pytest.fixture
def page(stack: Stack, browser: Browser) -> Iterator[Page]:
    with signed_in(stack, browser, height=1600) as page:
        page.goto(f"{stack.server}/cluster")
        yield page


def pools(stack: Stack) -> dict[str, dict[str, object]]:
    return {pool["name"]: pool for pool in stack.get("/cluster/pools")["items"]}


def write(page: Page, text: str) -> Locator:
    """Put a document into the dialog that is open."""
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".cm-line").first).to_be_visible()
    dialog.locator(".cm-content").fill(text)
    return dialog


def make(page: Page, text: str) -> None:
    page.get_by_role("button", name="New pool").click()
    write(page, text).get_by_role("button", name="Create pool").click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def card(page: Page, name: str) -> Locator:
    return page.get_by_role("list", name="Pools").get_by_role("listitem").filter(has=page.get_by_role("heading", name=name, exact=True))


def delete(page: Page, name: str) -> None:
    page.get_by_role("button", name=f"Delete {name}").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete pool").click()
    expect(card(page, name)).to_have_count(0)


def test_a_pool_is_made_changed_and_deleted(stack: Stack, page: Page) -> None:
    make(page, POOL)
    expect(card(page, "desks")).to_contain_text("manual · zone=a")
    expect(card(page, "desks")).to_contain_text("0 to 3")
    page.get_by_role("button", name="Edit desks").click()
    dialog = page.get_by_role("dialog", name="Edit the pool desks")
    expect(dialog.locator(".cm-content")).to_contain_text("max_nodes: 3")
    write(page, POOL.replace("3", "5")).get_by_role("button", name="Save").click()
    expect(card(page, "desks")).to_contain_text("0 to 5")
    assert pools(stack)["desks"]["max_nodes"] == 5
    delete(page, "desks")
    assert "desks" not in pools(stack)


def test_a_wrong_pool_is_refused_at_its_line(stack: Stack, page: Page) -> None:
    page.get_by_role("button", name="New pool").click()
    dialog = write(page, POOL.replace("labels: {zone: a}", "slotz: 4").replace("3", "0"))
    problems = dialog.get_by_role("list", name="Problems").get_by_role("listitem")
    expect(problems).to_have_text(
        [
            "/max_nodes Must be at least 1, not 0",
            "/slotz slotz is not a field of a pool; did you mean slots? It takes: name, provider, min_nodes, max_nodes, labels, slots, spot, "
            "autoscale, server",
        ]
    )
    marks = dialog.locator(".cm-gutter-lint .cm-gutterElement").filter(has=page.locator(".cm-lint-marker-error"))
    numbers = [number.bounding_box() for number in dialog.locator(".cm-lineNumbers .cm-gutterElement").all()]
    marked = [box["y"] for mark in marks.all() if (box := mark.bounding_box())]
    assert [at for at, box in enumerate(numbers) if box and box["height"] and box["y"] in marked] == [3, 4], "lines 3 and 4"
    expect(dialog.get_by_role("button", name="Create pool")).to_be_disabled()

    write(page, SPENT.replace("slots: 4\n", ""))
    dialog.get_by_role("button", name="Create pool").click()
    expect(dialog.get_by_role("alert")).to_contain_text("slots")
    assert "spent" not in pools(stack)
    dialog.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("button", name="New pool")).to_be_focused()


def test_why_a_pool_does_not_grow_for_a_job_stands_in_it(stack: Stack, page: Page) -> None:
    job = stack.submit(tiny_gpt("needs-more-nodes", 10, nodes=4))
    make(page, SPENT)
    held = card(page, "spent").get_by_role("list", name="Jobs that spent does not grow for")
    expect(held).to_contain_text("needs-more-nodes: ")
    expect(held).to_contain_text("spent")
    expect(card(page, "spent")).to_contain_text("0 of 0")
    held.get_by_role("link", name="needs-more-nodes").click()
    page.wait_for_url(f"**/jobs/{job}*")
    stack.cancel(job)
    page.goto(f"{stack.server}/cluster")
    delete(page, "spent")
