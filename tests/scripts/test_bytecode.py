"""What gets bytecode in the coordinator's image."""

from __future__ import annotations

import subprocess
import sys

import pytest

from scripts.images.bytecode import PROGRAMS, ROOMS, USED_LATER, imported, modules


@pytest.mark.parametrize("name", [*PROGRAMS, *USED_LATER])
def test_what_is_imported_later_is_there(name: str) -> None:
    """A name that a package has given up would have no bytecode, and nobody would see it."""
    program = f"import importlib, warnings; warnings.simplefilter('ignore'); importlib.import_module({name!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_every_service_and_no_migration_is_among_the_modules() -> None:
    found = set(modules(ROOMS))
    assert {"paceline.api.main", "paceline.api.services.experiments.analysis_process", "paceline.db.session"} <= found
    assert not [name for name in found if "migrations" in name or name.endswith("__main__")]


def test_what_an_image_does_not_have_is_passed_over() -> None:
    assert not imported("paceline.no_such_room")
    assert imported("paceline.db.base")
