"""Links of pages that lie elsewhere on the site than in the repository."""

import pytest

from scripts.docs_site.links import rewrite

PAGES = {"docs/scripts.md": "scripts.md", "docs/a/b.md": "a/b.md", "examples/README.md": "examples.md", "docs/chart.svg": "chart.svg"}


@pytest.mark.parametrize(
    ("source", "text", "rewritten"),
    [
        ("docs/scripts.md", "see [how](../examples/README.md#from-torchrun).", "see [how](examples.md#from-torchrun)."),
        ("examples/README.md", "[scripts](../docs/scripts.md)", "[scripts](scripts.md)"),
        ("docs/a/b.md", "[up](../scripts.md) and [`own`](b.md)", "[up](../scripts.md) and [`own`](b.md)"),
        ("docs/scripts.md", "![a chart](chart.svg)", "![a chart](chart.svg)"),
        (
            "docs/scripts.md",
            "[the code](../training/README.md), [here](#below), [web](https://x.y/z)",
            "the code, [here](#below), [web](https://x.y/z)",
        ),
        ("docs/scripts.md", "a list[int](x) and [brackets [within]](a/b.md)", "a listint and [brackets [within]](a/b.md)"),
    ],
)
def test_a_link_leads_to_the_page_on_the_site_or_becomes_text(source: str, text: str, rewritten: str) -> None:
    assert rewrite(text, source, PAGES) == rewritten
