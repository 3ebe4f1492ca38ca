"""Charts of a long run in a real browser: what one step did is seen on the screen, and in what is downloaded."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Browser, Locator, Page, StorageState, expect

from tests.e2e.stack import Stack, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

# A deadline, not a pause: a loaded machine draws a page slowly.
expect.set_options(timeout=30_000)

STEPS, SPIKE = 250_000, 123_457
#: WCAG 2.2, success criterion 1.4.11: graphics that are needed to understand the content.
LEAST_CONTRAST = 3.0

#: Of each row of pixels between the spike's foot and its top, the highest contrast with the panel behind the chart.
ROW_CONTRASTS = """(panel) => {
  const canvas = panel.querySelector("canvas"), over = panel.querySelector(".u-over");
  const ratio = canvas.width / canvas.clientWidth;
  const [left, top] = [over.offsetLeft, over.offsetTop].map((length) => Math.round(length * ratio));
  const [width, height] = [over.clientWidth, over.clientHeight].map((length) => Math.round(length * ratio));
  const behind = getComputedStyle(panel).backgroundColor.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const { data } = canvas.getContext("2d").getImageData(left, top, width, height);
  const linear = (part) => (part <= 0.04045 * 255 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const contrast = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const rows = [];
  for (let y = Math.round(0.15 * height); y < 0.9 * height; y++) {
    let best = 1;
    for (let x = 0; x < width; x++) {
      const at = 4 * (y * width + x), alpha = data[at + 3] / 255;
      const seen = behind.map((part, index) => alpha * data[at + index] + (1 - alpha) * part);
      best = Math.max(best, contrast(luminance(seen), luminance(behind)));
    }
    rows.push(best);
  }
  return rows;
}"""


@pytest.fixture(scope="module")
def job_id(stack: Stack) -> str:
    spec = {
        "name": "spiky",
        "script": {"path": "spiky.py", "args": [str(STEPS), str(SPIKE)]},
        "environment": {"working_directory": str(Path(__file__).parent / "user_code")},
    }
    job_id = stack.submit(spec)
    stack.wait_for_state(job_id, "completed", timeout=120)
    wait_until("the last point", lambda: stack.get(f"/metrics/jobs/{job_id}?buckets=10")["last_step"] == STEPS, 120)
    return job_id


@pytest.fixture(scope="module")
def session(stack: Stack, browser: Browser) -> StorageState:
    context = browser.new_context()
    page = context.new_page()
    page.goto(stack.login_link())
    page.wait_for_url("**/jobs*")
    state = context.storage_state()
    context.close()
    return state


@pytest.fixture(params=["light", "dark"])
def page(request: pytest.FixtureRequest, browser: Browser, session: StorageState) -> Iterator[Page]:
    theme: Literal["light", "dark"] = request.param
    context = browser.new_context(viewport={"width": 1440, "height": 900}, color_scheme=theme, storage_state=session)
    context.set_default_timeout(30_000)
    yield context.new_page()
    context.close()


def loss_chart(page: Page, stack: Stack, job_id: str, view: str = "") -> Locator:
    page.goto(f"{stack.server}/jobs/{job_id}{view}")
    panel = page.get_by_role("region", name="Loss chart")
    expect(panel.locator("[data-last-step]")).to_be_visible()
    return panel


def test_one_step_in_250_000_is_seen_and_named(page: Page, stack: Stack, job_id: str) -> None:
    """It was there at a contrast of 1.2 to 1, and no sentence named it."""
    for view in ("", "?smooth=0.9", f"?from={SPIKE - 2_000}&to={SPIKE + 2_000}"):
        panel = loss_chart(page, stack, job_id, view)
        rows: list[float] = panel.evaluate(ROW_CONTRASTS)
        assert len(rows) > 50
        assert min(rows) >= LEAST_CONTRAST, (view, min(rows))
    expect(loss_chart(page, stack, job_id)).to_contain_text("max 10,000 in steps 123,000–123,999")


def test_a_rate_of_many_steps_is_their_mean(page: Page, stack: Stack, job_id: str) -> None:
    loss_chart(page, stack, job_id)
    panel = page.get_by_role("region", name="Throughput chart")
    panel.get_by_role("button", name="Throughput as a table").click()
    row = panel.get_by_role("row").nth(3)
    expect(row).to_contain_text("5,050")


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_a_chart_is_zoomed_along_its_values_and_downloaded(page: Page, stack: Stack, job_id: str, tmp_path: Path) -> None:
    panel = loss_chart(page, stack, job_id)
    panel.evaluate("(panel) => panel.scrollIntoView({block: 'center'})")
    box = panel.locator(".u-over").bounding_box()
    assert box is not None
    x, top = box["x"] + box["width"] / 2, box["y"]
    page.mouse.move(x, top + 0.5 * box["height"])
    page.mouse.down()
    page.mouse.move(x + 3, top + 0.95 * box["height"], steps=5)
    page.mouse.up()
    panel.get_by_role("button", name="Actions for Loss").click()
    expect(page.get_by_role("menuitem", name="Show all values")).to_be_visible()
    assert "from=" not in page.url, "the steps are zoomed too"
    page.get_by_role("menuitem", name="Show all values").click()
    files: dict[str, bytes] = {}
    for kind in ("PNG", "SVG", "CSV"):
        panel.get_by_role("button", name="Actions for Loss").click()
        with page.expect_download() as download:
            page.get_by_role("menuitem", name=f"Download {kind}").click()
        assert download.value.suggested_filename == f"loss.{kind.lower()}"
        download.value.save_as(tmp_path / kind)
        files[kind] = (tmp_path / kind).read_bytes()
    assert files["PNG"].startswith(b"\x89PNG")
    texts = [element.text for element in ElementTree.fromstring(files["SVG"]).iter("{http://www.w3.org/2000/svg}text")]
    assert {"Loss", "loss", "10k"} <= set(texts)
    highest = max(csv.DictReader(files["CSV"].decode().splitlines()), key=lambda row: float(row["maximum"]))
    assert (highest["step"], highest["name"], highest["maximum"]) == ("123999", "loss", "10000")
    panel.get_by_role("button", name="Actions for Loss").click()
    page.get_by_role("menuitem", name="Full screen").click()
    dialog = page.get_by_role("dialog", name="Loss")
    expect(dialog.locator("[data-last-step]")).to_be_visible()
    page.keyboard.press("Escape")
    expect(panel.locator("[data-last-step]")).to_be_visible()
