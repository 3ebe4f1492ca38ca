"""The one version of Paceline: that of the installed package, or of the checkout."""

from __future__ import annotations

import importlib.metadata
import tomllib

from paceline.location import ROOT


def version() -> str:
    """Return the version of the installed package, or that of `pyproject.toml` where nothing is installed."""
    try:
        return importlib.metadata.version("paceline")
    except importlib.metadata.PackageNotFoundError:
        return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])
