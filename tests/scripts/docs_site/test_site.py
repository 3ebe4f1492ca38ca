"""The whole site is built without a warning, and its pages stand by themselves."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.setup_project import documentation
from tests.e2e.stack import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site that set-up has built, of the present sources and by the same command; it is built here where there is none."""
    folder, stamp = documentation()
    if stamp.fresh(folder / "index.html"):
        return folder
    folder = tmp_path_factory.mktemp("docs") / "site"
    done = subprocess.run(
        [sys.executable, "-m", "scripts.docs_site", "--into", str(folder)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_page_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        loaded = re.findall(r'<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)="(https?:[^"]*)"', page.read_text())
        assert loaded == [], page


def test_pages_of_the_repository_are_there_under_their_titles(site: Path) -> None:
    assert "torchrun" in (site / "coming_from.html").read_text()
    assert "<h1" in (site / "reference" / "job_spec.html").read_text()
    assert (site / "search" / "search_index.json").stat().st_size > 100_000
