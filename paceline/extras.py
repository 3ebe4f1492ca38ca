"""What to type for a package that only an extra of Paceline brings."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError, distribution

from paceline.location import ROOT


def pip_install(extra: str) -> str:
    """Return the command.

    In a checkout that is used without being installed it names the packages of the extra: no index has Paceline, and a stranger's package might have its
    name.
    """
    try:
        distribution("paceline")
    except PackageNotFoundError:
        project = ROOT / "pyproject.toml"
        extras = tomllib.loads(project.read_text())["project"]["optional-dependencies"] if project.is_file() else {}
        if packages := extras.get(extra):
            return f"pip install {' '.join(repr(package) for package in packages)}"
    return f"pip install 'paceline[{extra}]'"
