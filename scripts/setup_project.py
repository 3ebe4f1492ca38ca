"""Everything that running Paceline needs: virtual environment, packages, documentation, dashboard, database. What has not changed is skipped.

    python3 -m scripts.setup_project [--dev]

--dev adds what the tests and checks need. Standard library only.
"""

from __future__ import annotations

import argparse
import platform
import re
import shutil
import subprocess
import sys
import time
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from scripts.steps import ROOT, Stamp, StepError, run, say

OLDEST_PYTHON = (3, 11)
OLDEST_NODE = (20, 19)
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
DASHBOARD = ROOT / "dashboard"
DATA = ROOT / ".paceline"
#: The documentation's sources: pages, and the code that its reference is made from.
DOCUMENTED = (
    "docs",
    "mkdocs.yml",
    "scripts/docs_site",
    "GLOSSARY.md",
    "SECURITY.md",
    "examples/README.md",
    "cluster/simulation/README.md",
    "api",
    "cli",
    "training/schema",
)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--dev", action="store_true", help="also what the tests and checks need")
    dev = arguments.parse_args().dev
    began = time.monotonic()
    try:
        set_up(dev)
    except StepError as error:
        print(f"setup failed: {error}", file=sys.stderr)
        return 1
    say(f"set up in {time.monotonic() - began:.1f} s")
    return 0


def set_up(dev: bool) -> None:
    _virtual_environment()
    node = _node()
    with ThreadPoolExecutor(1) as beside:
        modules = beside.submit(_dashboard_modules, node)
        _packages(dev)
        _project()
        modules.result()
    _documentation()
    _dashboard_build(node)
    _database()


def _virtual_environment() -> None:
    if sys.version_info < OLDEST_PYTHON:
        raise StepError(f"this is Python {platform.python_version()}; Paceline needs {'.'.join(map(str, OLDEST_PYTHON))} or newer")
    if not PYTHON.exists():
        say("creating the virtual environment in .venv")
        venv.create(VENV, with_pip=True, clear=VENV.exists())


def _packages(dev: bool) -> None:
    inputs = [ROOT / name for name in ("requirements.txt", "requirements-dev.txt", "constraints.txt")]
    both = Stamp("packages-dev", inputs, _venv_version())
    runtime = Stamp("packages", inputs, _venv_version())
    if both.fresh(PYTHON) or (not dev and runtime.fresh(PYTHON)):
        return
    name = "requirements-dev.txt" if dev else "requirements.txt"
    run(f"installing Python packages of {name}", [PYTHON, "-m", "pip", "install", "-r", ROOT / name])
    (both if dev else runtime).set()


def _project() -> None:
    stamp = Stamp("project", [ROOT / "pyproject.toml"], _venv_version())
    if not stamp.fresh(VENV / "bin" / "paceline"):
        run("installing the paceline command", [PYTHON, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "-e", ROOT])
        stamp.set()


def documentation() -> tuple[Path, Stamp]:
    """Return the folder of the documentation site, and the stamp that is fresh if the site is built from the present sources."""
    return DASHBOARD / "public" / "docs", Stamp("documentation", [ROOT / name for name in DOCUMENTED], _venv_version())


def _documentation() -> None:
    """Build the site that the coordinator serves at /docs; the dashboard's build takes it along."""
    site, stamp = documentation()
    if not stamp.fresh(site / "index.html"):
        run("building the documentation", [PYTHON, "-m", "scripts.docs_site"])
        stamp.set()


def _dashboard_modules(node: str) -> None:
    stamp = Stamp("dashboard-modules", [DASHBOARD / "package-lock.json", DASHBOARD / "package.json"], node)
    if not stamp.fresh(DASHBOARD / "node_modules"):
        run("installing the dashboard's packages", ["npm", "ci", "--no-audit", "--no-fund"], cwd=DASHBOARD)
        stamp.set()


def _dashboard_build(node: str) -> None:
    build = Stamp("dashboard-build", _dashboard_sources(), node)
    if not build.fresh(DASHBOARD / "dist" / "index.html"):
        run("building the dashboard", ["npm", "run", "build"], cwd=DASHBOARD)
        build.set()


def _dashboard_sources() -> list[Path]:
    apart = {"node_modules", "dist", "coverage", "README.md"}
    return [path for path in sorted(DASHBOARD.iterdir()) if path.name not in apart and not path.name.startswith(".")]


def _node() -> str:
    oldest = ".".join(map(str, OLDEST_NODE))
    advice = f"install Node {oldest} or newer (https://nodejs.org), then run 'make setup' again"
    if not (shutil.which("node") and shutil.which("npm")):
        raise StepError(f"building the dashboard needs node and npm, and they are not on PATH; {advice}")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    numbers = re.match(r"v(\d+)\.(\d+)", version)
    if numbers is None or tuple(map(int, numbers.groups())) < OLDEST_NODE:
        raise StepError(f"node is {version}; {advice}")
    return version


def _database() -> None:
    stamp = Stamp("database", [ROOT / "db" / "migrations", ROOT / "db" / "models"])
    if not stamp.fresh(DATA / "paceline.db"):
        run(
            "migrating the database in .paceline", [PYTHON, "-m", "paceline.api.admin", "migrate"], environment={"PACELINE_DATA": str(DATA)}
        )
        stamp.set()


def _venv_version() -> str:
    """What the stamps are bound to: a new virtual environment starts empty."""
    config = VENV / "pyvenv.cfg"
    return config.read_text() + str(config.stat().st_ino) if config.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
