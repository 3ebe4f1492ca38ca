"""Every page, dialog, menu and mistake of `surfaces.py` and `opened.py` on the simulated cluster, dark as wide as a desk and light as wide as a phone,
before a release also the other way round: nothing that axe finds, `target-size` included, and nothing wider than the screen.

`pytest tests/e2e/simulated_cluster/test_accessibility.py -s` prints the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Error, Page, expect

from tests.e2e.axe import HEIGHT, LOOKS, OTHER_LOOKS, Look, findings
from tests.e2e.simulated_cluster.opened import OPENED
from tests.e2e.simulated_cluster.simulation import Simulated
from tests.e2e.simulated_cluster.surfaces import DAILY, PAGES, Surface

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

#: A deadline, not a pause: a loaded machine draws a page slowly.
DRAWN_MS = 60_000


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(reduced_motion="reduce")
    context.set_default_timeout(DRAWN_MS)
    yield context.new_page()
    context.close()


@pytest.mark.parametrize(
    "looks",
    [pytest.param(LOOKS, id="dark-desk-light-phone"), pytest.param(OTHER_LOOKS, id="light-desk-dark-phone", marks=pytest.mark.release)],
)
@pytest.mark.parametrize("surfaces", [pytest.param(DAILY, id="daily"), pytest.param(PAGES, id="pages"), pytest.param(OPENED, id="opened")])
def test_nothing_is_found_on_any_surface(page: Page, simulated: Simulated, surfaces: tuple[Surface, ...], looks: tuple[Look, ...]) -> None:
    expect.set_options(timeout=DRAWN_MS)
    ids = {name: each["id"] for name, each in (simulated.jobs() | simulated.experiments()).items()}
    wrong: list[str] = []
    for surface in surfaces:
        page.set_viewport_size({"width": looks[0][1], "height": HEIGHT})
        try:
            show(page, simulated.server, surface, ids)
            found = findings(page, looks)
        except (AssertionError, Error) as error:
            found = [f"it does not open: {error}"]
        print(f"{surface.name:32} {len(found)}")
        wrong += [f"{surface.name}: {finding}" for finding in found]
    assert not wrong, f"{len(wrong)} findings on {len(surfaces)} surfaces\n" + "\n".join(wrong)


def show(page: Page, server: str, surface: Surface, ids: dict[str, str]) -> None:
    page.goto(server + re.sub(r"\{([^}]+)\}", lambda name: ids[name[1]], surface.path))
    expect(page.get_by_text(surface.text, exact=False).first).to_be_visible()
    surface.act(page)
