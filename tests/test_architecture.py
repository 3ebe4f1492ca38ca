"""The ways through the code in ARCHITECTURE.md lead to functions that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROW = re.compile(r"^\| \w+ \| `([^`]+)` \| `([^`]+)` \|", re.MULTILINE)
STEPS = ROW.findall((ROOT / "ARCHITECTURE.md").read_text())


@pytest.mark.parametrize(("file", "function"), STEPS)
def test_a_step_exists(file: str, function: str) -> None:
    tree = ast.parse((ROOT / file).read_text())
    assert function in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_no_row_is_passed_over() -> None:
    rows = [
        line for line in (ROOT / "ARCHITECTURE.md").read_text().splitlines() if line.startswith("| ") and not line.startswith("| process")
    ]
    assert len(STEPS) == len(rows) > 40


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md", "GLOSSARY.md", "CONTRIBUTING.md"])
def test_its_links_lead_somewhere(page: str) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", (ROOT / page).read_text())
    assert [link for link in links if "://" not in link and not (ROOT / link).exists()] == []


def test_each_word_of_the_glossary_has_a_meaning_and_what_others_call_it() -> None:
    rows = [line for line in (ROOT / "GLOSSARY.md").read_text().splitlines() if line.startswith("| ") and not line.startswith("| word |")]
    assert len(rows) > 100
    cells = re.compile(r"(?<!\\)\|")
    assert [row for row in rows if [bool(cell.strip()) for cell in cells.split(row)[1:-1]] != [True, True, True]] == []
