"""Collect the site's pages: files of the repository under the names that they have on the site, and the pages made from the code."""

from __future__ import annotations

import shutil
from pathlib import Path

from scripts.docs_site.links import rewrite
from scripts.docs_site.reference import commands, errors, job_spec, rest, settings
from scripts.steps import ROOT

#: Pages from outside `docs/`, which has the others.
ELSEWHERE = {
    "GLOSSARY.md": "glossary.md",
    "examples/README.md": "examples.md",
    "cluster/simulation/README.md": "simulation.md",
    "SECURITY.md": "security.md",
}
#: Folders of `docs/` that the site leaves out: records for those who change Paceline.
APART = ("decisions",)
MADE = {
    "reference/job_spec.md": job_spec.page,
    "reference/commands.md": commands.page,
    "reference/rest.md": rest.page,
    "reference/errors.md": errors.page,
    "reference/settings.md": settings.page,
}


def collect(into: Path) -> None:
    """Write all pages below the folder `into`, which is made."""
    pages = sources()
    for source, name in pages.items():
        target = into / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.suffix == ".md":
            target.write_text(rewrite((ROOT / source).read_text(), source, pages))
        else:
            shutil.copyfile(ROOT / source, target)
    for name, make in MADE.items():
        target = into / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(make())


def sources() -> dict[str, str]:
    """Return the site's name of each file that it takes from the repository, by its path there."""
    docs = ROOT / "docs"
    files = (path.relative_to(docs) for path in sorted(docs.rglob("*")) if path.is_file())
    own = {f"docs/{path}": str(path) for path in files if path.parts[0] not in APART}
    return own | ELSEWHERE
