"""Links between pages, which lie elsewhere on the site than in the repository."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

_LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^()\s]+)\)")


def rewrite(text: str, source: str, pages: Mapping[str, str]) -> str:
    """Return the page `source` (a path in the repository) with its links as the site needs them.

    `pages` maps the files that are on the site to their names there. A link to another file of the repository becomes its bare text: readers of
    the site may have no checkout.
    """

    def replaced(link: re.Match[str]) -> str:
        target, _, anchor = link["target"].partition("#")
        if not target or ":" in target.split("/")[0]:
            return link[0]
        there = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if there not in pages:
            return link["text"]
        relative = posixpath.relpath(pages[there], posixpath.dirname(pages[source]) or ".")
        return f"{link['image']}[{link['text']}]({relative}{'#' + anchor if anchor else ''})"

    return _LINK.sub(replaced, text)
