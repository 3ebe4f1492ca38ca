"""The blocks of code in docs/scripts.md, as a reader copies them."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "scripts.md"


def block_below(words: str) -> str:
    """The block below the only paragraph of the page that has a line beginning with these words."""
    (block,) = re.findall(rf"^{re.escape(words)}[^\n]*:\n\n((?: {{4}}[^\n]*\n|\n)+)", PAGE.read_text(), re.MULTILINE)
    return textwrap.dedent(block)
