"""Write docs/scaling_tables.md: published scaling tables beside what the cost model predicts for them.

python -m scripts.scaling_tables [--check]
"""

from __future__ import annotations

import argparse
import sys

from paceline.parallelism.planning.cost.published import published
from scripts.scaling_tables.pages import page
from scripts.scaling_tables.predictions import compare_all
from scripts.steps import ROOT

FILE = ROOT / "docs" / "scaling_tables.md"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page is not what would be written")
    arguments = parser.parse_args()
    text = page(compare_all(published()))
    if not arguments.check:
        FILE.write_text(text)
        return 0
    if FILE.exists() and FILE.read_text() == text:
        return 0
    print(f"{FILE.relative_to(ROOT)} is out of date; write it with python -m scripts.scaling_tables", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
