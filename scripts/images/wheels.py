"""A folder of wheels as a package index: what `--build-arg TORCH_INDEX` names where torch's own index is out of reach."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path


def download_index(requirements: list[str], folder: Path) -> None:
    """Let this machine's pip download `requirements` and what they need into `folder`, and make an index of it (PEP 503)."""
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--dest", folder, *requirements], check=True)
    for wheel in sorted(folder.glob("*.whl")):
        project = folder / re.sub(r"[-_.]+", "-", wheel.name.partition("-")[0]).lower()
        project.mkdir(exist_ok=True)
        wheel.rename(project / wheel.name)
    for project in (each for each in folder.iterdir() if each.is_dir()):
        links = "".join(f'<a href="{wheel.name}">{wheel.name}</a>\n' for wheel in sorted(project.glob("*.whl")))
        (project / "index.html").write_text(f"<!DOCTYPE html>\n{links}")
