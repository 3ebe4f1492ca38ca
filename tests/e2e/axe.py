"""What axe finds on a page as it stands, in several themes and widths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from playwright.sync_api import Page, TimeoutError

from tests.e2e.stack import ROOT

AXE = ROOT / "dashboard" / "node_modules" / "axe-core" / "axe.min.js"
#: A theme, and a width in CSS pixels.
Look = tuple[Literal["dark", "light"], int]
DESK, PHONE = 1440, 375
HEIGHT = 900
#: Sections out of sight are not laid out, and keep the colours of the theme before, until somebody scrolls there: axe sees them as that one does.
ALL_DRAWN = "* { content-visibility: visible !important }"
#: Charts are drawn again once their place is narrower.
NARROW_MS = 20_000
LOOKS: tuple[Look, ...] = (("dark", DESK), ("light", PHONE))
OTHER_LOOKS: tuple[Look, ...] = (("light", DESK), ("dark", PHONE))
#: The times in a log are links in lines of text. What Mantine opens stands outside of the landmarks, beside what opened it in the order of tabs, and
#: covers parts of other controls until it is closed.
#: A colour that still changes to the other theme is not measured; an animation that is held is not waited for.
FIND = """async () => {
    const opened = [...document.querySelectorAll("[data-portal] > *")].map((each) => each.getBoundingClientRect());
    const isCovered = (one) => opened.some((two) => one.left < two.right && two.left < one.right && one.top < two.bottom && two.top < one.bottom);
    const left = {
        region: ({ element }) => element.closest("[data-portal]"),
        "target-size": ({ element }) =>
            element.closest("[role=log]") || (!element.closest("[data-portal]") && isCovered(element.getBoundingClientRect())),
    };
    const moving = document.getAnimations().filter(({ effect }) => Number.isFinite(effect.getComputedTiming().endTime));
    const still = Promise.allSettled(moving.map(({ finished }) => finished));
    await Promise.race([still, new Promise((resolve) => setTimeout(resolve, 3000))]);
    const rules = { "target-size": { enabled: true } };
    return (await axe.run(document, { rules, resultTypes: ["violations"], elementRef: true })).violations
        .map(({ id, impact, nodes }) => ({ id, impact, nodes: nodes.filter((node) => !left[id]?.(node)) }))
        .filter(({ nodes }) => nodes.length > 0)
        .map(({ id, impact, nodes }) => `${impact} ${id}: ${nodes.slice(0, 3).map(({ html }) => html.slice(0, 160)).join(" | ")}`);
}"""


def findings(page: Page, looks: Sequence[Look] = LOOKS) -> list[str]:
    """What axe finds in each look, `target-size` included, and where the page has to be scrolled sideways."""
    page.evaluate(AXE.read_text())
    page.add_style_tag(content=ALL_DRAWN)
    found: list[str] = []
    for theme, width in looks:
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        page.set_viewport_size({"width": width, "height": HEIGHT})
        try:
            page.wait_for_function("(width) => document.documentElement.scrollWidth <= width", arg=width, timeout=NARROW_MS)
        except TimeoutError:
            found.append(f"{theme} {width}: {page.evaluate('document.documentElement.scrollWidth')} px wide")
        found += [f"{theme} {width}: {finding}" for finding in page.evaluate(FIND)]
    return found
