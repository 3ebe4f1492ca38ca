"""Build the documentation site: pages of the repository and a reference made from the code, as static files that the coordinator serves.

    python -m scripts.docs_site [--into FOLDER]

The pages are collected in a folder of their own, and MkDocs writes the site to `dashboard/public/docs`, from where the dashboard's build takes it.
A link that leads nowhere, or a page that no menu has, ends the build.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.docs_site.collect import collect
from scripts.steps import ROOT

SITE = ROOT / "dashboard" / "public" / "docs"


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--into", type=Path, default=SITE, help="folder of the site; emptied first")
    site: Path = arguments.parse_args().into
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--clean", "--site-dir", str(site.absolute())]
    with tempfile.TemporaryDirectory() as sources:
        collect(Path(sources))
        environment = {**os.environ, "DOCS_SOURCES": sources, "NO_MKDOCS_2_WARNING": "1"}
        done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    for map_file in site.rglob("*.map"):
        map_file.unlink()
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
